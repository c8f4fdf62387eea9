from benchmarks.scale.run import CLAIM

CLAIM.main()
