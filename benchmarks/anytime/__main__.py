from benchmarks.anytime.run import CLAIM

CLAIM.main()
