from tfps.throughput import Throughput


def test_speed_counts_from_the_first_trained_batch_without_pauses():
    now = [0.0]
    throughput = Throughput(lambda: now[0])

    def at(seconds, examples, pause=False):
        now[0] = seconds
        (throughput.pause if pause else throughput.update)(examples)

    at(0, 0)
    at(10, 0)
    assert throughput.examples_per_second == 0
    at(11, 100)  # the first batch: counting begins
    at(13, 300)
    assert throughput.examples_per_second == 100
    at(14, 400, pause=True)
    at(50, 400)  # an evaluation went on meanwhile
    at(52, 800)
    assert throughput.seconds == 5
    assert throughput.examples_per_second == 140
