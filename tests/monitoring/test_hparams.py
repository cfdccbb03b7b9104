"""What TensorBoard's HParams plugin reads, beside TensorBoard's own messages."""

from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

from tfps.monitoring import tensorboard

AT = 1_700_000_000.25


def test_the_names_are_tensorboards():
    assert tensorboard.PLUGIN == metadata.PLUGIN_NAME
    assert tensorboard.START_TAG == metadata.SESSION_START_INFO_TAG
    assert tensorboard.END_TAG == metadata.SESSION_END_INFO_TAG
    read = plugin_data_pb2.HParamsPluginData.FromString(tensorboard.session_end(True, AT))
    assert read.version == metadata.PLUGIN_DATA_VERSION


def test_settings_are_read_with_their_types():
    settings = {"train.epochs": "3", "train.jit": "True", "mode.name": "sync", "data.train": "a=b"}
    content = tensorboard.session_start(settings, AT)
    read = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert read.start_time_secs == AT
    values = {name: value.WhichOneof("kind") for name, value in read.hparams.items()}
    assert values == {
        "train.epochs": "number_value",
        "train.jit": "bool_value",
        "mode.name": "string_value",
        "data.train": "string_value",
    }
    assert read.hparams["train.epochs"].number_value == 3.0
    assert read.hparams["data.train"].string_value == "a=b"


def test_an_end_is_read_as_it_was():
    for is_success, status in ((True, api_pb2.STATUS_SUCCESS), (False, api_pb2.STATUS_FAILURE)):
        content = tensorboard.session_end(is_success, AT)
        read = plugin_data_pb2.HParamsPluginData.FromString(content).session_end_info
        assert (read.status, read.end_time_secs) == (status, AT)
