from benchmarks.overhead.run import CLAIM

CLAIM.main()
