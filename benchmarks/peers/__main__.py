from benchmarks.peers.run import CLAIM

CLAIM.main()
