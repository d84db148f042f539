import platform

from weaverl.cli.machine import processor


def test_the_processor_is_named_by_its_model(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A Chip 9000: Z\nflags\t: fpu\n\nmodel name\t: A Chip 9000: Z\n")
    assert processor(info) == "A Chip 9000: Z"


def test_where_no_model_is_told_the_architecture_stands_in(tmp_path):
    info = tmp_path / "cpuinfo"
    assert processor(info) == (platform.processor() or platform.machine())
    info.write_text("processor\t: 0\nmodel name\t:\n")
    assert processor(info) == (platform.processor() or platform.machine())
