from benchmarks.ecg.run import CLAIM

CLAIM.main()
