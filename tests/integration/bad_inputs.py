"""Wrong inputs for the trainer, and what their messages must say."""

import json
import os
import shutil
from collections.abc import Callable, Mapping

import tensorflow as tf
from bad_input import CONFIG, Case, Place
from datasets_on_disk import generate

from tfps.data import manifest
from tfps.storage import files

UNREACHABLE = {"chief": ["127.0.0.1:20001"], "worker": ["127.0.0.1:2"], "ps": ["UNSERVED"]}


def with_flags(*more: str) -> Callable[[Place], list[str]]:
    return lambda place: place.flags(*(flag.format(path=place.path) for flag in more))


def with_config(text: str, *more: str) -> Callable[[Place], list[str]]:
    return lambda place: place.flags(place.config(text), *more)


def without(flag: str) -> Callable[[Place], list[str]]:
    return lambda place: [x for x in place.flags() if not x.startswith(f"--{flag}=")]


def tf_config(cluster: Mapping[str, list[str]], job: str = "chief", index: int = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def no_manifest(place: Place) -> list[str]:
    (place.path / "empty").mkdir()
    return place.flags(f"--data.train={place.path}/empty")


def manifest_not_json(place: Place) -> list[str]:
    data, flag = place.data()
    (data / manifest.FILE).write_text('{"format": 1,')
    return place.flags(flag)


def shard_missing(place: Place) -> list[str]:
    data, flag = place.data()
    (data / "smoke-00001-of-00002.tfrecord").unlink()
    return place.flags(flag)


def shard_truncated(place: Place) -> list[str]:
    data, flag = place.data()
    shard = data / "smoke-00000-of-00002.tfrecord"
    os.truncate(shard, shard.stat().st_size - 100)
    return place.flags(flag)


def shard_corrupt(place: Place) -> list[str]:
    data, flag = place.data()
    shard = data / "smoke-00000-of-00002.tfrecord"
    content = bytearray(shard.read_bytes())
    content[len(content) // 140 * 70 + 20] ^= 0xFF  # all 140 records have the same size
    shard.write_bytes(content)
    return place.flags(flag)


def shard_too_short(place: Place) -> list[str]:
    """A shard with fewer records than its manifest says."""
    _, flag = place.data()

    def change(content: dict) -> None:
        content["shards"][1]["records"] += 100

    place.edit_manifest(change)
    return place.flags(flag)


def shard_of_another_schema(place: Place) -> list[str]:
    data, flag = place.data()
    path = str(data / "smoke-00000-of-00002.tfrecord")
    numbers = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0, 3.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"numbers": numbers}))
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(140):
            writer.write(example.SerializeToString())

    def change(content: dict) -> None:
        size, crc32c = os.path.getsize(path), files.checksum_of_file(path)
        content["shards"][0] |= {"bytes": size, "crc32c": crc32c}

    place.edit_manifest(change)
    return place.flags(flag)


def id_outside_the_table(place: Place) -> list[str]:
    source = generate(
        place.path / "more_ids", "--records=200", "--shards=1", "--task.vocabulary=40"
    )
    _, flag = place.data(source)

    def change(content: dict) -> None:
        [token] = [each for each in content["features"] if each["name"] == "token"]
        assert token["vocabulary_size"] == 40
        token["vocabulary_size"] = 20

    place.edit_manifest(change)
    return place.flags(flag)


def checkpoint_of_another_model(place: Place) -> list[str]:
    shutil.copytree(place.finished_job, place.path / "job")
    return place.flags("--task.units=16")


def every_checkpoint_damaged(place: Place) -> list[str]:
    shutil.copytree(place.finished_job, place.path / "job")
    for index in place.path.glob("job/checkpoints/*/parameters.index"):
        index.unlink()
    return place.flags()


def job_dir_a_file(place: Place) -> list[str]:
    (place.path / "job").write_text("a file")
    return place.flags()


CASES = {
    "no config": Case(without("config"), ("--config is missing",)),
    "unknown config": Case(
        with_flags("--config=configs/nowhere.py"),
        ("--config=configs/nowhere.py: no such file", "configs/census.py"),
    ),
    "config without get_config": Case(
        with_config("x = 1\n"), ("--config={path}/bad.py: it has no function get_config()",)
    ),
    "config raises": Case(
        with_config("\ndef get_config():\n    return {}['missing']\n"),
        ("{path}/bad.py line 3: KeyError: 'missing'",),
    ),
    "config with a syntax error": Case(
        with_config("def get_config(:\n"), ("{path}/bad.py line 1: SyntaxError",)
    ),
    "unknown field": Case(
        with_flags("--train.batchsize=8"),
        ("--train.batchsize=8: train.batchsize is no field", "train.batch_size"),
    ),
    "field of a wrong type": Case(
        with_flags("--train.batch_size=many"),
        ("--train.batch_size=many: train.batch_size must be int, not 'many'",),
    ),
    "batch_size=0": Case(with_flags("--train.batch_size=0"), ("train.batch_size=0", "least 1")),
    "unknown flag": Case(with_flags("--job_directory=x"), ("job_directory", "--help")),
    "no job_dir": Case(without("job_dir"), ("--job_dir is missing",)),
    "no data.train": Case(without("data.train"), ("--data.train is missing", "trainer.prepare")),
    "data.train not there": Case(
        with_flags("--data.train={path}/nowhere"), ("--data.train={path}/nowhere does not exist",)
    ),
    "data.eval not there": Case(
        with_flags("--data.eval={path}/nowhere"), ("--data.eval={path}/nowhere does not exist",)
    ),
    "no manifest": Case(no_manifest, ("--data.train={path}/empty has no manifest.json",)),
    "manifest not JSON": Case(manifest_not_json, ("--data.train={path}/data", "is not JSON")),
    "shard missing": Case(
        shard_missing,
        ("--data.train={path}/data: shard smoke-00001-of-00002.tfrecord is missing",),
    ),
    "shard truncated": Case(
        shard_truncated, ("smoke-00000-of-00002.tfrecord has", "bytes, but the manifest says")
    ),
    "shard corrupt": Case(
        shard_corrupt,
        (
            "epoch 1: shard {path}/data/smoke-00000-of-00002.tfrecord: record 70 (byte ",
            ") does not fit its checksum; correct the data or make the shard again",
        ),
    ),
    "shard too short": Case(
        shard_too_short,
        ("shard {path}/data/smoke-00001-of-00002.tfrecord: record 11 (byte ", ") is missing: "),
    ),
    "shard of another schema": Case(
        shard_of_another_schema,
        (
            "{path}/data/smoke-00000-of-00002.tfrecord: record 0 (byte 0) holds 3 values in "
            "'numbers', not 4; it is the first of 140 bad records there",
        ),
    ),
    "more bad records than allowed": Case(
        lambda place: [*shard_of_another_schema(place), "--data.max_bad_records=139"],
        (
            "record 0 (byte 0) holds 3 values in 'numbers', not 4; it is the first of 140 bad "
            "records there; 0 were passed over before, and --data.max_bad_records=139 allows no "
            "more",
        ),
    ),
    "data of another schema": Case(
        with_flags("--task.vocabulary=30"),
        ("'token' has vocabulary_size 20 in the data, but 30 in the config",),
    ),
    "id outside the table": Case(
        id_outside_the_table,
        (
            "shard {path}/data/smoke-00000-of-00001.tfrecord: record ",
            "in 'token', outside [0, 20); it is the first of ",
        ),
    ),
    "job_dir a file": Case(job_dir_a_file, ("--job_dir={path}/job cannot be written",)),
    "job_dir read-only": Case(
        with_flags("--job_dir=/proc/tfps"), ("--job_dir=/proc/tfps cannot be written",)
    ),
    "checkpoint of another model": Case(
        checkpoint_of_another_model,
        ("checkpoint {path}/job/checkpoints/", "does not fit this run", "another --job_dir"),
    ),
    "every checkpoint damaged": Case(
        every_checkpoint_damaged,
        ("every checkpoint in {path}/job/checkpoints is damaged", "parameters.index is missing"),
    ),
    "unsupported optimizer": Case(
        with_config(CONFIG, "--task.wrong=optimizer"),
        ("optimizer Nadam is not supported", "Adagrad, Adam"),
    ),
    "optimizer with an average": Case(
        with_config(CONFIG, "--task.wrong=average"), ("optimizer Adam: use_ema=True",)
    ),
    "model that does not fit the features": Case(
        with_config(CONFIG, "--task.wrong=model"), ("build_model(): ", "numbers", "token")
    ),
    "metric that fails": Case(
        lambda place: place.flags(
            place.config(CONFIG), "--task.wrong=metric", f"--data.eval={place.datasets.eval}"
        ),
        ("metric 'skill' of Bad fails: ", "labels of 167 evaluation records", "override metrics()"),
        {"TF_CONFIG": tf_config(UNREACHABLE)},
    ),
    "loss that is no scalar, before any task is looked for": Case(
        with_config(CONFIG, "--task.wrong=loss"),
        ("loss() of Bad gives a tensor of shape (None,), not a scalar",),
        {"TF_CONFIG": tf_config(UNREACHABLE)},
    ),
    "async without a cluster": Case(
        with_flags("--mode.name=async"), ("--mode.name=async", "TF_CONFIG")
    ),
    "one thread in a cluster": Case(
        with_flags("--inter_op_threads=1"),
        ("--inter_op_threads=1: a task of a cluster needs 2",),
        {"TF_CONFIG": tf_config(UNREACHABLE)},
    ),
    "unknown mode": Case(with_flags("--mode.name=sink"), ("--mode.name=sink",)),
    "another backend": Case(with_flags(), ("KERAS_BACKEND=jax",), {"KERAS_BACKEND": "jax"}),
    "local in a cluster": Case(
        with_flags("--mode.name=local"),
        ("--mode.name=local, but TF_CONFIG names a cluster",),
        {"TF_CONFIG": tf_config({"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]})},
    ),
    "ps_memory without a unit": Case(
        with_flags("--ps_memory=16"), ("--ps_memory=16: write a positive number and a unit",)
    ),
    "ps_memory too small": Case(
        with_flags("--ps_memory=512MiB"),
        ("--ps_memory=512 MiB: each of 1 ps needs up to", "no number of ps would do"),
    ),
    "unknown wire_dtype": Case(
        with_flags("--train.wire_dtype=float16"),
        ("train.wire_dtype=float16 must be one of float32, bfloat16",),
    ),
    "unknown row_updates": Case(
        with_flags("--train.row_updates=eager"),
        ("train.row_updates=eager must be one of keras, lazy",),
    ),
    "TF_CONFIG not JSON": Case(with_flags(), ("TF_CONFIG is not JSON",), {"TF_CONFIG": "{'a'"}),
    "TF_CONFIG with an index out of range": Case(
        with_flags(),
        ("TF_CONFIG: task.index is 1, but cluster.worker has 1 address(es)",),
        {"TF_CONFIG": tf_config({"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]}, "worker", 1)},
    ),
    "workers without ps": Case(
        with_flags("--mode.name=async"),
        ("--mode.name=async needs a ps, but TF_CONFIG names 1 workers and no ps",),
        {"TF_CONFIG": tf_config({"chief": ["h:1"], "worker": ["h:2"]})},
    ),
    "more workers needed than there are": Case(
        with_flags("--min_workers=2"),
        ("--min_workers=2, but there are 1 workers; ask for no more",),
        {"TF_CONFIG": tf_config(UNREACHABLE)},
    ),
    "ps not reachable": Case(
        with_flags("--connect_seconds=2"),
        (
            "ps 0 at {unserved}: its port refused connections (start it, ",
            " for 2 s (--connect_seconds)",
        ),
        {"TF_CONFIG": tf_config(UNREACHABLE)},
    ),
}
