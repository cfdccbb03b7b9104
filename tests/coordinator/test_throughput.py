from tfps.coordinator.coordinator import Throughput


class Timed:
    def __init__(self):
        self.now = 0.0
        self.throughput = Throughput(lambda: self.now)

    def at(self, seconds, action, examples):
        self.now = seconds
        getattr(self.throughput, action)(examples)


def test_speed_counts_from_the_first_trained_batch_without_pauses():
    run = Timed()
    run.at(0, "begin", 0)
    run.at(10, "update", 0)
    assert run.throughput.examples_per_second == run.throughput.with_pauses == 0
    run.at(11, "update", 100)  # the first batch: counting begins
    run.at(13, "update", 300)
    assert run.throughput.examples_per_second == 100
    run.at(14, "pause", 400)
    run.at(50, "begin", 400)  # an evaluation continued meanwhile
    run.at(52, "update", 800)
    assert run.throughput.seconds == 5
    assert run.throughput.examples_per_second == 140
    assert run.throughput.with_pauses == 700 / 41


def test_what_was_trained_before_a_resume_is_not_this_run_s():
    run = Timed()
    run.at(0, "begin", 5000)
    run.at(9, "update", 5000)
    assert run.throughput.examples_per_second == 0
    run.at(10, "update", 5100)
    run.at(12, "update", 5500)
    assert run.throughput.examples_per_second == 200
