"""Attacks from papers as functions, for a comparison in a clone: rlab compare ... --attacks benchmarks.peers.functions:square_min

Attacks with surrogates need a line of your own: gfcs = function("gfcs", (rlab.load_victim("timm:resnet18"),))
"""

from benchmarks.peers.contender import function

square_min, simba_dct, hopskipjump = function("square_min"), function("simba_dct"), function("hopskipjump")
sparse_rs, patch_rs, surfree = function("sparse_rs"), function("patch_rs"), function("surfree")
