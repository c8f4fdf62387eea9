from benchmarks.beyond.run import CLAIM

CLAIM.main()
