from benchmarks.papers.run import CLAIM

CLAIM.main()
