"use strict";
/* Which part of the picture is seen: pan, zoom, fit, and the map in the corner. */
function makeCamera(stage, map, isPart) {
  const scene = stage.querySelector(".scene");
  const LEAST = 0.02;
  const MOST = 4;
  const MARGIN = 16;
  const LARGEST = 320;
  let size = { width: 1, height: 1 };
  let boxes = [];
  let x = 0,
    y = 0,
    scale = 1;
  let moved = () => {};

  const room = () => ({ width: stage.clientWidth, height: stage.clientHeight });

  function apply() {
    scene.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    stage.classList.toggle("far", scale < 0.3);
    drawMap();
  }

  /* Show another part, and tell who is to show the same one. */
  function turn() {
    apply();
    moved({ x, y, scale });
  }

  /* Show the same part as another camera; here it lies *aside* to the right. */
  function follow(other, aside) {
    ({ y, scale } = other);
    x = other.x - aside * scale;
    apply();
  }

  /* Let no more than the margin be empty where the picture could fill the room. */
  function bound() {
    const { width, height } = room();
    const keep = 60;
    x = Math.min(width - keep, Math.max(keep - size.width * scale, x));
    y = Math.min(height - keep, Math.max(keep - size.height * scale, y));
    turn();
  }

  function move(dx, dy) {
    x += dx;
    y += dy;
    bound();
  }

  function zoom(factor, at = { x: room().width / 2, y: room().height / 2 }) {
    const next = Math.min(MOST, Math.max(LEAST, scale * factor));
    x = at.x - ((at.x - x) * next) / scale;
    y = at.y - ((at.y - y) * next) / scale;
    scale = next;
    bound();
  }

  /* Show all, or as much as can be read: from the top, or where *home* is if that is far below. */
  function fit(least = 0, home = boxes[0]) {
    const { width, height } = room();
    const wide = (width - 2 * MARGIN) / size.width;
    const whole = Math.min(1, wide, (height - 2 * MARGIN) / size.height);
    scale = whole >= least ? whole : Math.min(1, Math.max(least, wide));
    x = (width - size.width * scale) / 2;
    y = whole >= least ? (height - size.height * scale) / 2 : MARGIN;
    if (size.width * scale > width && home) x = width / 2 - (home.x + home.width / 2) * scale;
    if (whole < least && home && home.y * scale > height / 2) y = height / 3 - home.y * scale;
    turn();
  }

  /* Where the edges of a rectangle of the picture are on the screen. */
  function edges(rect) {
    const [left, top] = [x + rect.x * scale, y + rect.y * scale];
    return { left, top, right: left + rect.width * scale, bottom: top + rect.height * scale };
  }

  /* Whether some of a rectangle of the picture is seen. */
  function isSeen(rect) {
    const { left, top, right, bottom } = edges(rect);
    return right >= 0 && bottom >= 0 && left <= room().width && top <= room().height;
  }

  /* Bring a rectangle of the picture into view; near by only if it is not seen already. */
  function reveal(rect, isCentred = false) {
    const { width, height } = room();
    if (isCentred && scale < 0.6) scale = 0.8;
    const whole = Math.min((width - 2 * MARGIN) / rect.width, (height - 2 * MARGIN) / rect.height);
    if (isCentred && scale > whole) scale = Math.max(0.4, whole);
    const { left, top, right, bottom } = edges(rect);
    const isWhole = left >= 0 && top >= 0 && right <= width && bottom <= height;
    if (isWhole && !isCentred) return turn();
    if (isCentred || !isSeen(rect)) {
      x = width / 2 - (rect.x + rect.width / 2) * scale;
      y = Math.min(height / 2 - (rect.y + rect.height / 2) * scale, height / 3 - rect.y * scale);
      if (rect.height * scale > height) y = 40 - rect.y * scale;
    } else {
      x += Math.max(0, MARGIN - left) - Math.max(0, right - width + MARGIN);
      y += Math.max(0, MARGIN - top) - Math.max(0, bottom - height + MARGIN);
    }
    return bound();
  }

  /* Bring a rectangle into view, and tell nobody. */
  function peek(rect) {
    const told = moved;
    moved = () => {};
    reveal(rect);
    moved = told;
  }

  const onScreen = (point) => ({ x: x + point.x * scale, y: y + point.y * scale });

  /* Hold a point of the picture at a place on the screen. */
  function hold(point, place) {
    x = place.x - point.x * scale;
    y = place.y - point.y * scale;
    bound();
  }

  /* Tell of a new picture: how large it is, and the rectangles that the map shows. */
  function show(shape, rectangles) {
    size = shape;
    boxes = rectangles;
    const ratio = size.width / size.height;
    map.width = Math.round(LARGEST * Math.min(1, Math.max(0.25, ratio)));
    map.height = Math.round(LARGEST * Math.min(1, Math.max(0.25, 1 / ratio)));
    map.style.aspectRatio = `${map.width} / ${map.height}`;
    map.style.width = `${(map.width / LARGEST) * 100}%`;
    apply();
  }

  function mapScale() {
    return Math.min(map.width / size.width, map.height / size.height);
  }

  function drawMap() {
    const paint = map.getContext("2d");
    const style = getComputedStyle(map);
    const ratio = mapScale();
    const left = (map.width - size.width * ratio) / 2,
      top = (map.height - size.height * ratio) / 2;
    paint.clearRect(0, 0, map.width, map.height);
    for (const box of boxes) {
      paint.fillStyle = style.getPropertyValue(box.isOpen ? "--map-box" : "--map-item");
      paint.fillRect(
        left + box.x * ratio,
        top + box.y * ratio,
        Math.max(1, box.width * ratio),
        Math.max(1, box.height * ratio),
      );
    }
    const { width, height } = room();
    paint.strokeStyle = style.getPropertyValue("--first");
    paint.lineWidth = 2;
    paint.strokeRect(
      left - (x / scale) * ratio,
      top - (y / scale) * ratio,
      (width / scale) * ratio,
      (height / scale) * ratio,
    );
  }

  function lookAt(event) {
    const box = map.getBoundingClientRect();
    const ratio = (mapScale() * box.width) / map.width;
    const left = (box.width - size.width * ratio) / 2,
      top = (box.height - size.height * ratio) / 2;
    const { width, height } = room();
    x = width / 2 - ((event.clientX - box.left - left) / ratio) * scale;
    y = height / 2 - ((event.clientY - box.top - top) / ratio) * scale;
    bound();
  }

  // Pointers: one pans, two zoom. The wheel pans, and zooms with Ctrl, as a pinch on a touchpad does.

  // In a report, somebody who scrolls past the picture does not move it: it is pressed first.

  const isIdle = () => isPart && !stage.closest(".view").matches(":focus-within");
  const attend = () => stage.classList.toggle("idle", isIdle());
  for (const event of ["focusin", "focusout"]) stage.closest(".view").addEventListener(event, () => setTimeout(attend));
  attend();

  const pointers = new Map();
  let travelled = 0;
  const span = () => {
    const [a, b] = [...pointers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, length: Math.hypot(a.x - b.x, a.y - b.y) || 1 };
  };
  const local = (event) => {
    const box = stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  stage.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    if (!pointers.size) travelled = 0;
    pointers.set(event.pointerId, local(event));
    if (isIdle()) stage.parentElement.focus({ preventScroll: true });
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = local(event);
    const spread = pointers.size > 1 ? span() : null;
    pointers.set(event.pointerId, now);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (spread) {
      const after = span();
      move(after.x - spread.x, after.y - spread.y);
      zoom(after.length / spread.length, after);
    } else if (travelled > 4) {
      if (!stage.hasPointerCapture(event.pointerId)) stage.setPointerCapture(event.pointerId);
      stage.classList.add("moving");
      move(now.x - before.x, now.y - before.y);
    }
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (!pointers.size) stage.classList.remove("moving");
  };
  stage.addEventListener("pointerup", release);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener(
    "wheel",
    (event) => {
      if (isIdle()) return;
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY * unit * 0.004), local(event));
      else if (event.shiftKey && !event.deltaX) move(-event.deltaY * unit, 0);
      else move(-event.deltaX * unit, -event.deltaY * unit);
    },
    { passive: false },
  );
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    lookAt(event);
  });
  map.addEventListener("pointermove", (event) => {
    if (map.hasPointerCapture(event.pointerId)) lookAt(event);
  });

  /* Whether the pointer has moved the picture since it was pressed: then it chose nothing. */
  const wasDragged = () => travelled > 4;

  /* Call *handler* with what is shown whenever somebody moves the picture. */
  function onMove(handler) {
    moved = handler;
  }

  return { move, zoom, fit, reveal, peek, isSeen, hold, onScreen, show, apply, follow, share: turn, onMove, wasDragged };
}
