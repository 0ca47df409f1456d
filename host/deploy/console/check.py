"""Works with the console in Chromium, as an operator does on the first day.

    npm ci && pip install -r requirements.txt
    python3 check.py target/release/annex [--screenshots FOLDER] [--axe axe.min.js]

It serves examples/catalogue. Each page is looked at in light and dark, 400 and 1,400 px wide: it has no error in the browser's log,
no violation of its Content-Security-Policy, no file of another host, nothing that scrolls sideways, and axe-core finds nothing serious.
"""

import argparse
import json
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from browser import WAYS, Browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from server import TOKEN, Server
from wait import LIMIT, until

HERE = Path(__file__).resolve().parent
CLOCK = "https://console.example/clock/v1"
LOCKED = "https://console.example/locked/v1"
STATE_INJECTION = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
HOSTILE = "<script>alert(1)</script>"
TENANT = """[card]
name = "Acme's agent"
description = "The agent of a tenant"

[agent]
kind = "template"
name = "acme_agent"
instruction = "Answer briefly."

[agent.model.scripted]
fallback = "Done."
"""


class Operator:
    """The first day, in order. Each method is a part of it, and says what it has seen."""

    def __init__(self, server: Server, browser: Browser):
        self.server, self.browser = server, browser

    def upload(self, component: Path) -> None:
        """From the list to the page with the approval."""
        browser = self.browser
        browser.open("/extensions")
        browser.follow("Upload a component")
        browser.find("#upload-file").send_keys(str(component))
        assert browser.find("#upload-name").get_attribute("value") == component.stem, "the name is that of the file"
        browser.leave(lambda: browser.find("#upload button").click())
        browser.sees("What it wants")

    def settings(self, more: str = "", uri: str = CLOCK) -> None:
        self.browser.write("#approve-settings", f'[grants]\nclock = true\n\n[parameters]\nuri = "{uri}"\n{more}')

    def to_extension(self, uri: str = CLOCK) -> None:
        browser = self.browser
        browser.open("/extensions")
        rows = browser.driver.find_elements(By.CSS_SELECTOR, "main tbody tr")
        [row] = [row for row in rows if row.find_elements(By.TAG_NAME, "td")[0].text == uri]
        browser.leave(row.find_element(By.TAG_NAME, "a").click)
        browser.sees("Calls by hook", uri)

    def calls(self) -> int:
        """The calls of the hook `response` that the page shows."""
        row = self.browser.find("section[aria-label=Now]").text
        found = re.search(r"^response (\d+)", row, re.MULTILINE)
        return int(found[1]) if found else 0

    def without_a_login(self) -> str:
        """A wrong token, a token in the URL, and pages without a login lead to the login."""
        browser = self.browser
        for path in ("/", "/requests", f"/?token={TOKEN}", f"/login?token={TOKEN}"):
            browser.open(path)
            assert browser.at().startswith("/login") and browser.find("#login-token"), f"{path}: {browser.at()}"
        browser.is_quiet()
        browser.open("/login")
        browser.look("login")
        browser.write("#login-token", "not-the-token-of-this-server")
        browser.press("Log in")
        browser.sees("This is not an admin token of this server.")
        browser.look("login-refused", "401")
        return "nobody is in without the token"

    def login(self) -> str:
        """The keyboard alone logs in and skips to the content."""
        browser = self.browser
        browser.open("/")
        browser.leave(lambda: browser.driver.switch_to.active_element.send_keys(TOKEN, Keys.ENTER))
        assert browser.at() == "/", browser.at()
        cookies = browser.driver.get_cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")], cookies
        browser.find("body").send_keys(Keys.TAB)
        browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        assert browser.driver.switch_to.active_element.get_attribute("id") == "main", "Tab and Enter go to the content"
        return "with the keyboard alone"

    def overview(self) -> str:
        browser = self.browser
        browser.open("/")
        browser.sees("What is wrong now", "Nothing.", "ready", "Catalogue Agent", "Turns per second")
        browser.look("overview")
        with browser.staying():
            self.server.send("Hello")
            browser.sees("the server has ended 1 turns")
        browser.look("overview-after-a-turn")
        # The check of the policy can fail.
        browser.driver.execute_script("document.body.append(Object.assign(document.createElement('script'), {text: '1'}))")
        browser.is_quiet("policy violated: script-src-elem by inline", "Content Security Policy")
        return "the agent, its card and its numbers"

    def approval(self) -> str:
        """A component that wants a grant: each import in words, the change on the card, then the installation."""
        browser = self.browser
        browser.open("/extensions")
        browser.look("extensions")
        browser.follow("Upload a component")
        browser.look("upload")
        garbage = self.server.folder.parent / "garbage.wasm"
        garbage.write_bytes(b"no component")
        browser.find("#upload-file").send_keys(str(garbage))
        browser.leave(lambda: browser.find("#upload button").click())
        browser.look("upload-refused", "422")

        self.upload(self.server.component("clock"))
        browser.sees("clock", "It reads the time of day and sets timers.")
        browser.find("summary").click()
        browser.sees("wasi:clocks/wall-clock", "It affects nothing outside of its own turn, and needs no grant.")
        suggested = browser.find("#approve-settings").get_attribute("value")
        assert "clock = true" in suggested, suggested
        browser.look("approve")
        browser.write("#approve-settings", "")
        browser.press("Install")
        browser.sees("Nothing has changed. The reason:", "clock")
        browser.look("approve-refused", "422")
        self.settings()
        browser.press("Show the change on the card")
        browser.sees(f"The entry of {CLOCK} is new on the card.", "+ ")
        browser.look("approve-preview")
        assert CLOCK not in self.on_card(), "a preview installs nothing"
        browser.press("Install")
        browser.sees("Health: serving", CLOCK)
        assert CLOCK in self.on_card()
        return "its grant in words, the change on the card, the installation"

    def on_card(self) -> list[str]:
        card = json.load(urlopen(f"{self.server.url}/.well-known/agent-card.json", timeout=LIMIT))
        return [entry["uri"] for entry in card["capabilities"]["extensions"]]

    def first_calls(self) -> str:
        """The page of the extension shows the calls of clients while it is open."""
        browser = self.browser
        self.to_extension()
        assert self.calls() == 0
        with browser.staying():
            for _ in range(3):
                assert self.server.state_of("What time is it?", CLOCK) == "TASK_STATE_COMPLETED"
            until(lambda: self.calls() == 9, "three calls for each message")
        browser.look("extension")
        return f"{self.calls()} calls without loading the page again"

    def quarantine_and_rollback(self) -> str:
        """A version that fails in each turn is quarantined, and rolled back to the one before it."""
        browser, server = self.browser, self.server
        self.upload(server.component("clock", "too few calls"))
        assert browser.find("#approve-settings").get_attribute("value").count("clock = true") == 1, "the settings in force"
        self.settings("\n[limits]\nhost_calls = 1\n")
        browser.press("Show the change on the card")
        browser.look("approve-replacement")
        browser.press("Install in place of version")
        browser.sees("Roll back to version")
        with self.clients():
            browser.sees("quarantined, next trial in", "Last failure")
            browser.look("extension-quarantined")
            browser.open("/")
            browser.sees("quarantine", CLOCK)
            browser.look("overview-quarantined")
            browser.open("/extensions")
            browser.look("extensions-quarantined")
        self.to_extension()
        browser.follow("Roll back to version")
        browser.sees("is installed again, in place of")
        browser.look("confirm-rollback")
        browser.press("Roll back")
        browser.sees("Health: serving")
        assert server.state_of("What time is it?", CLOCK) == "TASK_STATE_COMPLETED"
        browser.open("/")
        browser.sees("Nothing.")
        browser.is_quiet()
        return "seen on the overview, and gone after the rollback"

    @contextmanager
    def clients(self) -> Iterator[None]:
        """Messages that go on until the end."""
        is_over = threading.Event()

        def send() -> None:
            while not is_over.wait(0.05):
                self.server.send("What time is it?", CLOCK)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(LIMIT)

    def shadow(self) -> str:
        """A version beside the one in force, then in its place."""
        browser, server = self.browser, self.server
        self.upload(server.component("clock", "shadow"))
        browser.press("Run as a shadow")
        browser.sees("Shadow", "same results")
        for _ in range(5):
            server.state_of("What time is it?", CLOCK)

        def agreed() -> bool:
            browser.driver.refresh()
            return "5 of 5 turns (100 %)" in browser.text()

        until(agreed, "the agreement of the shadow")
        browser.look("extension-with-shadow")
        browser.follow("Promote")
        browser.look("confirm-promote")
        browser.press("Promote")
        browser.sees("Health: serving", "promote")
        assert "same results" not in browser.text(), "the comparison has ended"
        assert server.state_of("What time is it?", CLOCK) == "TASK_STATE_COMPLETED"
        browser.look("extension-promoted")
        return "5 of 5 turns with the same results, then promoted"

    def reference(self) -> str:
        """A component of a registry that is in annex.lock, and one that is not."""
        browser = self.browser
        reference = self.server.lock()
        browser.open("/extensions/upload")
        browser.write("#reference", reference.replace("1.0", "2.0"))
        browser.find("#reference").submit()
        browser.sees("Refused", "annex.lock")
        browser.look("reference-refused", "422")
        browser.open("/extensions/upload")
        browser.write("#reference", reference)
        browser.leave(lambda: browser.find("#reference").submit())
        browser.sees("What it wants", reference)
        assert browser.find("#approve-name").get_attribute("value") == "locked"
        self.settings(uri=LOCKED)
        browser.look("approve-reference")
        browser.press("Install")
        browser.sees("Health: serving", LOCKED)
        assert LOCKED in self.on_card()
        browser.follow("Remove")
        browser.look("confirm-remove")
        browser.press("Remove")
        assert browser.at().startswith("/extensions") and LOCKED not in self.on_card(), browser.at()
        return "installed from annex.lock without the registry, and removed"

    def waterfall(self) -> str:
        """Requests appear in the open list, and one is followed."""
        browser = self.browser
        browser.open("/requests")
        browser.sees("New requests appear here.")
        first = "tbody tr:first-child"
        with browser.staying():
            self.server.send(f"{HOSTILE} What time is it?", CLOCK, context="a-conversation")
            until(lambda: "a-conversation" in browser.find(first).text, "the request")
        browser.look("requests")
        browser.leave(lambda: browser.find(f"{first} a").click())
        browser.sees("authentication", "activation", "hook", "agent", CLOCK)
        bars = browser.driver.find_elements(By.CSS_SELECTOR, "svg.waterfall rect")
        assert bars and all(bar.size["width"] > 0 for bar in bars), "each piece of work has a bar"
        browser.look("request")
        browser.open("/requests")
        Select(browser.find("#filter-outcome")).select_by_value("failed")
        browser.press("Filter")
        browser.look("requests-failed")
        browser.leave(lambda: browser.find(f"{first} a").click())
        browser.sees("Cause", "limit of host calls")
        browser.look("request-failed")
        return f"a request with {len(bars)} pieces of work, and the cause of one that failed"

    def try_it(self) -> str:
        """A message by a form that is made from the schema on the card, as a client sends it."""
        browser = self.browser
        browser.open("/try")
        browser.look("try-it")
        boxes = {box.get_attribute("value"): box for box in browser.driver.find_elements(By.CSS_SELECTOR, "fieldset [type=checkbox]")}
        for uri in (STATE_INJECTION, CLOCK):
            boxes[uri].click()
        state = browser.find(f".state-field [name^=s{boxes[STATE_INJECTION].get_attribute('name')[1:]}]")
        state.send_keys(json.dumps({"name": HOSTILE}))
        browser.write("#try-text", f"Who am I? {HOSTILE}")
        Select(browser.find("#try-binding")).select_by_value("rest")
        browser.find("#try-stream").click()
        browser.press("Send")
        browser.sees("message:stream", "HTTP/1.1 200 OK", "text/event-stream", "TASK_STATE_COMPLETED", "alert(1)")
        browser.look("try-it-answer")
        return "a streamed answer over HTTP+JSON, on the wire"

    def tenants(self) -> str:
        browser = self.browser
        browser.open("/tenants")
        browser.look("tenants")
        browser.write("#tenant-name", "acme")
        browser.write("#tenant-config", TENANT.replace("template", "tmplate"))
        browser.press("Add")
        browser.sees("Nothing has changed. The reason:", "tmplate")
        browser.look("tenants-refused", "422")
        browser.write("#tenant-name", "acme")
        browser.write("#tenant-config", TENANT)
        browser.press("Add")
        assert browser.at() == "/tenant?name=acme", browser.at()
        browser.look("tenant")
        browser.open("/tenants")
        browser.sees("acme")
        browser.look("tenants-with-one")
        browser.follow("acme")
        browser.follow("Suspend")
        browser.look("confirm-suspend")
        browser.press("Suspend")
        browser.follow("Activate")
        browser.press("Activate")
        browser.follow("Remove")
        browser.look("confirm-remove-tenant")
        browser.press("Remove")
        assert browser.at() == "/tenants" and "acme" not in browser.text(), browser.at()
        return "one is added, suspended, activated and removed"

    def sessions(self) -> str:
        """A session is seen, and deleted after a question."""
        browser = self.browser
        browser.open("/sessions")
        browser.look("sessions")
        browser.write("#sessions-user", "A2A_USER_a-conversation")
        browser.press("Show")
        browser.follow("a-conversation")
        browser.sees("Conversation", HOSTILE, "TASK_STATE_COMPLETED", "Done.")
        browser.look("session")
        browser.follow("Delete the session")
        browser.sees("are lost")
        browser.look("confirm-delete")
        browser.press("Delete")
        assert browser.at().startswith("/sessions"), browser.at()
        browser.open("/sessions?user=A2A_USER_a-conversation")
        browser.sees("No session is stored.")
        browser.is_quiet()
        return "what is lost is said before"

    def other_pages(self) -> str:
        """A page of another origin sends no form and shows the console in no frame. It is of the same site, so it has the cookie."""
        browser, console = self.browser, self.server.console
        forms = "".join(
            f'<form method="post" action="{console}{path}"><input name="token" value="{TOKEN}"><button>{path}</button></form>'
            for path in ("/login", "/logout", "/extensions/reload")
        )
        page = f'<!DOCTYPE html><link rel="icon" href="data:,"><title>other</title>{forms}<iframe src="{console}/"></iframe>'.encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                pass

        other = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            for host in ("127.0.0.1", "localhost"):
                for form in range(3):
                    browser.driver.get(f"http://{host}:{other.server_address[1]}/")
                    browser.driver.switch_to.frame(0)
                    framed = browser.driver.find_element(By.TAG_NAME, "body").text
                    assert "Annex" not in framed and "Log" not in framed, f"in a frame: {framed}"
                    browser.driver.switch_to.default_content()
                    button = browser.driver.find_elements(By.TAG_NAME, "button")[form]
                    browser.leave(button.click)
                    browser.sees("Refused" if host == "127.0.0.1" or form == 0 else "Not logged in")
                    browser.is_quiet(*(["frame", "403"] if host == "127.0.0.1" or form == 0 else ["frame", "401"]))
        finally:
            other.shutdown()
        browser.open("/")
        browser.sees("What is wrong now")
        return "6 forms and 6 frames are refused, and the login stays"

    def logout(self) -> str:
        browser = self.browser
        browser.open("/")
        browser.leave(lambda: browser.find(".logout button").click())
        assert browser.at() == "/login", browser.at()
        for path in ("/", "/sessions", "/try"):
            browser.open(path)
            assert browser.at() == "/login", f"{path}: {browser.at()}"
        browser.is_quiet()
        return "no page is left"


def main() -> None:
    parser = argparse.ArgumentParser(description="Works with the console in Chromium.")
    parser.add_argument("annex", type=Path)
    parser.add_argument("--axe", type=Path, default=HERE / "node_modules/axe-core/axe.min.js")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of each page")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if arguments.screenshots:
        arguments.screenshots.mkdir(parents=True, exist_ok=True)
    passed = 0
    with TemporaryDirectory() as scratch:
        server = Server(arguments.annex.absolute(), Path(scratch) / "server")
        with server.running():
            browser = Browser(server.console, Path(scratch) / "chromium", arguments.axe.read_text(), arguments.screenshots)
            operator = Operator(server, browser)
            day = (
                operator.without_a_login, operator.login, operator.overview, operator.approval, operator.first_calls,
                operator.quarantine_and_rollback, operator.shadow, operator.reference, operator.waterfall, operator.try_it,
                operator.tenants, operator.sessions, operator.other_pages, operator.logout,
            )
            try:
                for part in day:
                    print(f"ok    {part.__name__.replace('_', ' ')}: {part()}", flush=True)
                    passed += 1
            except Exception:
                # A part begins where the one before it has ended.
                print(f"FAILED {part.__name__} at {browser.driver.current_url}\n{traceback.format_exc()}", flush=True)
            finally:
                browser.driver.quit()
    print(f"{browser.pages} pages in {len(WAYS)} ways")
    print(f"{passed} passed, {len(day) - passed} failed")
    sys.exit(0 if passed == len(day) else 1)


if __name__ == "__main__":
    main()
