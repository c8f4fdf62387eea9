from benchmarks.explain.run import CLAIM

CLAIM.main()
