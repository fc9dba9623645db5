// Takes the page anew every few seconds, and puts its content in place of the old one. Without it the page
// stays as it is until it is loaded again. Focus, scroll and what is being typed stay: they are outside of
// <main>, or are found again by their text.
"use strict";
const PAUSE_MS = 3000;
const pause = document.getElementById("pause");
const seen = document.getElementById("seen");
let paused = false;

const place = (element) => {
  if (!document.getElementById("main").contains(element)) return null;
  const same = [...document.querySelectorAll(`main ${element.tagName}`)].filter((one) => one.textContent === element.textContent);
  return { tag: element.tagName, text: element.textContent, at: same.indexOf(element) };
};

const refresh = async () => {
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (paused) return;
    const had = place(document.activeElement);
    document.getElementById("main").replaceChildren(...fresh.getElementById("main").childNodes);
    seen.removeAttribute("role");
    seen.replaceChildren(...fresh.getElementById("seen").childNodes);
    if (had) {
      const again = [...document.querySelectorAll(`main ${had.tag}`)].filter((one) => one.textContent === had.text)[had.at];
      if (again) again.focus({ preventScroll: true });
    }
  } catch (error) {
    seen.setAttribute("role", "alert");
    seen.textContent = "The page could not be refreshed: what it shows is old.";
  }
};

const tick = async () => {
  if (!paused && !document.hidden) await refresh();
  setTimeout(tick, PAUSE_MS);
};

pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Go on" : "Pause";
});
setTimeout(tick, PAUSE_MS);
