"""Chromium, and what each page of the console has to be."""

import base64
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from wait import LIMIT, until

NARROW, WIDE, HEIGHT = 400, 1_400, 900
# Each page is looked at in these ways: the colours and the width.
WAYS = [("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW)]
# The pages whose upper part is a picture of host/docs/console.md, with its name there.
PICTURES = {"overview-quarantined": "console-overview", "request": "console-request"}
# What axe-core may not find.
SERIOUS = ("serious", "critical")


class Browser:
    """A window of Chromium without a screen."""

    def __init__(self, console: str, scratch: Path, axe: str, screenshots: Path | None):
        self.console, self.axe, self.screenshots = console, axe, screenshots
        self.pages = 0
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in (
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking",
            "--disable-component-update", "--no-first-run", "--hide-scrollbars", "--force-prefers-reduced-motion",
            f"--user-data-dir={scratch}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(LIMIT)
        self.driver.set_script_timeout(LIMIT)
        watch = """document.addEventListener('securitypolicyviolation', (event) =>
            console.error('policy violated: ' + event.violatedDirective + ' by ' + event.blockedURI));"""
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=watch)
        self.shape("light", WIDE)

    def cdp(self, command: str, **parameters: object) -> dict:
        return self.driver.execute_cdp_cmd(command, parameters)

    def shape(self, colours: str, width: int) -> None:
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)

    def open(self, path: str) -> None:
        self.driver.get(f"{self.console}{path}")

    def at(self) -> str:
        """The path of the page."""
        return self.driver.current_url.removeprefix(self.console)

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def sees(self, *texts: str) -> None:
        for text in texts:
            until(lambda text=text: text in self.text(), repr(text), self.seen)

    def seen(self) -> str:
        return f"{self.at()} has:\n{self.text()[:3_000]}"

    def find(self, selector: str) -> WebElement:
        return until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector), selector, self.seen)

    def write(self, selector: str, text: str) -> None:
        element = self.find(selector)
        element.clear()
        element.send_keys(text)

    def follow(self, text: str) -> None:
        """Clicks on a link by a part of its text, and waits for the next page."""
        self.leave(lambda: self.find("main").find_element(By.PARTIAL_LINK_TEXT, text).click())

    def press(self, text: str) -> None:
        """Clicks on a button by the beginning of its text, and waits for the next page."""
        self.leave(lambda: self.driver.find_element(By.XPATH, f"//main//button[starts-with(normalize-space(), '{text}')]").click())

    @contextmanager
    def staying(self) -> Iterator[None]:
        """What happens inside must be seen without loading the page again."""
        self.driver.execute_script("window.isBefore = true")
        yield
        assert self.driver.execute_script("return window.isBefore"), f"{self.at()} has been loaded again"

    def leave(self, act: Callable[[], None]) -> None:
        """Does what leads to another page, and waits for that."""
        self.driver.execute_script("window.isBefore = true")
        act()
        script = "return window.isBefore !== true && document.readyState === 'complete'"
        until(lambda: self.driver.execute_script(script), "the next page", self.seen)

    def is_quiet(self, *expected: str) -> None:
        """The browser's log has a line for each of the expected texts, and no other."""
        lines = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        for text in expected:
            assert any(text in line for line in lines), f"{text!r} is not in the browser's log: {lines}"
        left = [line for line in lines if not any(text in line for text in expected)]
        assert not left, f"{self.at()}: {left}"

    def look(self, name: str, *expected: str) -> None:
        """Looks at the page in all ways. `expected` are texts of the browser's log."""
        self.pages += 1
        for colours, width in WAYS:
            self.shape(colours, width)
            wide = self.driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} px wide in {width} px: {self.too_wide(width)}"
            self.is_accessible(f"{name}, {colours}, {width} px")
            if self.screenshots:
                self.shoot(self.screenshots / f"{self.pages:02}-{name}-{width}-{colours}.png", width)
                if name in PICTURES and (colours, width) == WAYS[0]:
                    self.shoot(self.screenshots / f"{PICTURES[name]}.png", width, HEIGHT)
        self.shape("light", WIDE)
        script = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        foreign = [url for url in self.driver.execute_script(script) if not url.startswith(self.console)]
        assert not foreign, f"{name} loads {foreign}"
        self.is_quiet(*expected)

    def too_wide(self, width: int) -> list[str]:
        script = """return [...document.querySelectorAll('body *')]
            .filter((element) => element.getBoundingClientRect().right > arguments[0] && !element.closest('.scroll, pre'))
            .map((element) => element.outerHTML.slice(0, 120))"""
        return self.driver.execute_script(script, width)

    def is_accessible(self, where: str) -> None:
        """Injects axe-core by the driver, because the policy forbids it to the page."""
        if not self.driver.execute_script("return typeof axe === 'object'"):
            self.driver.execute_script(self.axe)
        script = "axe.run({resultTypes: ['violations']}).then((found) => arguments[0](found.violations), (error) => arguments[0](String(error)))"
        found = self.driver.execute_async_script(script)
        assert isinstance(found, list), f"{where}: {found}"
        serious = [
            f"{violation['id']} ({violation['help']}): {[node['html'][:200] for node in violation['nodes']][:3]}"
            for violation in found if violation["impact"] in SERIOUS
        ]
        assert not serious, f"{where}: {serious}"

    def shoot(self, file: Path, width: int, most: int | None = None) -> None:
        """The whole page as a picture, or its upper part."""
        height = self.cdp("Page.getLayoutMetrics")["cssContentSize"]["height"]
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, most or height), "scale": 1}
        picture = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(picture["data"]))
