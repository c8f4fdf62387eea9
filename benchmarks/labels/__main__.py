from benchmarks.labels.run import CLAIM

CLAIM.main()
