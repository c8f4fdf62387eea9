from benchmarks.serve.run import CLAIM

CLAIM.main()
