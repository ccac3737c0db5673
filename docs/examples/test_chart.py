"""A chart's author: do my pods fit on a card beside each other, and what do they hold?"""


def test_three_replicas_share_one_card(hami, hami_gpu):
    replicas = [hami.pod(on=hami_gpu, memory=8192, cores=30).running() for _ in range(3)]
    hami.usage(hami_gpu).equals(memory=24_576, cores=90, shares=3)
    replicas[0].delete()
    hami.usage(hami_gpu).equals(memory=16_384, cores=60, shares=2)
