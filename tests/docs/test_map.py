"""The map in CONTRIBUTING shows the layers and the imports of the source as they are."""

from __future__ import annotations

import draw_map


def test_the_map_is_up_to_date():
    assert draw_map.main(["--check"]) == 0


def test_a_box_that_is_not_on_the_map_is_noticed(monkeypatch):
    layers = draw_map.read_layers()
    monkeypatch.setattr(draw_map, "read_layers", lambda: layers[1:])
    assert draw_map.main(["--check"]) == 1


def test_every_box_has_words_and_no_others_do():
    boxes = {name for layer in draw_map.read_layers() for name in layer}
    assert set(draw_map.CONTENTS) == boxes
