from benchmarks.transfer.run import CLAIM

CLAIM.main()
