from benchmarks.reliability.run import CLAIM

CLAIM.main()
