from benchmarks.harden.run import CLAIM

CLAIM.main()
