from benchmarks.sets.run import CLAIM

CLAIM.main()
