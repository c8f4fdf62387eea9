from benchmarks.default.run import CLAIM

CLAIM.main()
