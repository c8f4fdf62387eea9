from benchmarks.video.run import CLAIM

CLAIM.main()
