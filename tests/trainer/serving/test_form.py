"""The form, in a real browser: filled in, sent, and read."""

import contextlib
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests import browser as installed
from tests.browser import in_browser
from tests.trainer.serving import served_models
from tests.trainer.serving.served_models import Hand, png
from tests.trainer.serving.server import LIMIT, serving
from tfps.data.feature import Feature
from tfps.export.versions import read_warm_up
from tfps.model.inputs import unpack_signature_inputs

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextlib.contextmanager
def browser(width=1200):
    """A browser whose page is so many pixels wide."""
    options = webdriver.ChromeOptions()
    options.binary_location = installed.chromium()
    for flag in QUIET:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(installed.driver()))
    try:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield driver
    finally:
        driver.quit()


def field(driver, name):
    """What a feature's value is written in."""
    selector = f".field[data-name='{name}'] > input, .field[data-name='{name}'] > textarea"
    return driver.find_element(By.CSS_SELECTOR, selector)


def fill(driver, name, text):
    field(driver, name).clear()
    field(driver, name).send_keys(text)


def predict(driver):
    """Presses the button; returns the numbers that are shown, or what was wrong."""
    driver.find_element(By.ID, "predict").click()
    told = driver.find_element(By.ID, "told")
    WebDriverWait(driver, LIMIT).until(lambda _: told.text)
    fault = driver.find_element(By.ID, "fault").text
    if fault:
        return fault
    shown = driver.find_elements(By.CSS_SELECTOR, "#answer .big, #answer td")
    return [float(number) for each in shown for number in each.text.strip("[]").split(",")]


def messages(driver):
    """What the browser has to say of the page."""
    return [entry["message"] for entry in driver.get_log("browser")]


def hosts(driver):
    """Whom the page has asked."""
    log = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    sent = (
        x["params"]["request"]["url"] for x in log if x["method"] == "Network.requestWillBeSent"
    )
    return {url.split("/")[2] for url in sent if url.startswith("http")}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    directory = tmp_path_factory.mktemp("kinds")
    served_models.export_task("kinds", directory / "export" / "5")
    with serving(directory, "--model_name=kinds") as server:
        yield server, served_models.load(directory / "export")


VALUES = {
    "tags": tf.ragged.constant([[3, 1, 4]], tf.int64, row_splits_dtype=tf.int64),
    "notes": tf.ragged.constant([['a "quoted" <b>', "grün"]], row_splits_dtype=tf.int64),
    "grid": tf.constant([[[0.5, -1.25], [2.0, 1e-3]]]),
    "colour": tf.constant(["grün"]),
}


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("width", [1200, 400])
def test_values_of_every_kind_are_filled_in_and_the_export_s_predictions_are_read(kinds, width):
    server, model = kinds
    expected = [x for array in model.predict(VALUES).values() for x in np.ravel(array)]
    with browser(width) as driver:
        driver.get(server.url)
        assert len(predict(driver)) == len(expected)  # of the record that it comes with
        fill(driver, "tags", "3, 1  4")
        fill(driver, "notes", 'a "quoted" <b>\ngrün')
        fill(driver, "grid", "0.5, -1.25, 2.0, 1e-3")
        fill(driver, "colour", "grün")
        np.testing.assert_allclose(predict(driver), expected, rtol=0, atol=1e-6)
        told = driver.find_element(By.ID, "told").text
        assert re.fullmatch(r"by version 5, in \d+ ms", told)
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width
        assert messages(driver) == []
        assert hosts(driver) == {f"127.0.0.1:{server.port}"}


@pytest.mark.slow
@in_browser
def test_what_is_wrong_is_told_at_its_field_and_the_next_is_answered(kinds):
    server, _ = kinds
    with browser() as driver:
        driver.get(server.url)
        good = predict(driver)
        tags = field(driver, "tags").get_attribute("value")
        for name, text, said in (
            ("tags", "99", "inputs: value 0 of feature 'tags' has the id 99, outside its voc"),
            ("tags", "1, x", "inputs: value 1 of feature 'tags' is \"x\", not a whole number"),
        ):
            fill(driver, name, text)
            assert predict(driver).startswith(said)
            wrong = driver.find_elements(By.CSS_SELECTOR, ".field.wrong")
            assert [each.get_attribute("data-name") for each in wrong] == [name]
        fill(driver, "tags", tags)
        assert predict(driver) == good
        assert driver.find_elements(By.CSS_SELECTOR, ".field.wrong") == []


@pytest.mark.slow
@in_browser
def test_real_records_are_there_to_choose_from_and_curl_asks_the_same(kinds):
    server, model = kinds
    [*_, many] = [x for x in read_warm_up(model.directory) if x.signature == "serving_default"]
    inputs = {name: tf.constant(value) for name, value in many.inputs.items()}
    predictions = model.predict(unpack_signature_inputs(inputs, model.features))
    with browser() as driver:
        driver.get(server.url)
        record = Select(driver.find_element(By.ID, "record"))
        assert len(record.options) == 32
        for index in (0, 7, 31):
            record.select_by_index(index)
            expected = [x for array in predictions.values() for x in np.ravel(array[index])]
            shown = predict(driver)
            np.testing.assert_allclose(shown, expected, rtol=0, atol=1e-6)
        driver.find_element(By.TAG_NAME, "summary").click()
        command = driver.find_element(By.ID, "curl").text
    told = re.fullmatch(r"curl -d '(.*)' (http://\S+)", command, re.DOTALL)
    path = "/v1/models/kinds:predict"
    assert told[2] == f"{server.url}{path}"
    status, content = server.ask(json.loads(told[1].replace("'\\''", "'")), path)
    assert status == 200
    assert [x for array in content["outputs"].values() for x in np.ravel(array)] == shown


@pytest.mark.slow
@in_browser
def test_a_file_may_be_chosen_for_bytes_and_is_shown(tmp_path: pathlib.Path) -> None:
    directory = served_models.export_pictures(tmp_path / "1")
    file = tmp_path / "picture.png"
    file.write_bytes(png(9))
    expected = served_models.load(directory).predict({"picture": tf.constant([png(9)])})
    with serving(directory) as server, browser() as driver:
        driver.get(server.url)
        before = predict(driver)
        chooser = driver.find_element(By.CSS_SELECTOR, "input[type=file]")
        assert chooser.is_displayed()
        chooser.send_keys(str(file))
        image = driver.find_element(By.TAG_NAME, "img")
        WebDriverWait(driver, LIMIT).until(
            lambda _: (
                image.is_displayed()
                and driver.execute_script("return arguments[0].naturalWidth", image)
            )
        )
        found = predict(driver)
        assert messages(driver) == []
    assert found != before
    np.testing.assert_allclose(found, expected["predictions"][0], rtol=0, atol=1e-6)


EVIL = '</script><script>document.title = "evil"</script>'


@pytest.mark.slow
@in_browser
def test_names_and_texts_of_a_model_are_text(tmp_path: pathlib.Path) -> None:
    features = (Feature("x", "float32"), Feature("text", "string"))
    records = {"x": tf.constant([1.5]), "text": tf.constant([EVIL])}
    name = '<b>it\'s "new" & old</b>'

    def function(values):
        return {"Infinity": values["x"], "NaN": 0 * values["x"] / 0}

    directory = Hand(features, function).export(tmp_path / "1", features, records)
    with serving(directory, f"--model_name={name}") as server, browser() as driver:
        driver.get(server.url)
        assert driver.title == f"{name}: version 1"
        assert driver.find_elements(By.TAG_NAME, "b") == []
        assert field(driver, "text").get_attribute("value") == EVIL
        assert not driver.find_element(By.CSS_SELECTOR, "input[type=file]").is_displayed()
        assert str(predict(driver)) == "[1.5, nan]"
        assert [each.text for each in driver.find_elements(By.CSS_SELECTOR, "#answer p")] == [
            "Infinity",
            "NaN",
        ]
        assert messages(driver) == []


def test_the_page_lets_nothing_in_but_itself(tmp_path):
    with serving(served_models.export_pictures(tmp_path / "1")) as server:
        status, headers, text = server.raw("GET", "/")
        again = server.raw("GET", "/")[2]
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    [nonce] = set(re.findall(r"'nonce-([\w-]+)'", policy))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(rf'<(?:script|style) nonce="{nonce}">', text)) == 2
    assert re.findall(r"(?:src|href)=\"(?!data:)", text) == []
    assert nonce not in again  # another one each time
