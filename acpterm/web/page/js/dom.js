// Creates elements. Text is always a text node: nothing here parses markup.

/**
 * Return a new element. `props` are attributes, except `class`, handlers such as `onclick`, and
 * `dataset`. A value of null or false leaves an attribute out. Children are elements or text.
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set an element's text unless it has this text, since setting it costs layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute unless it has this value; null removes it. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Make `wanted` the children of `parent` in this order, moving as few elements as possible. */
export function setChildren(parent, wanted) {
  const focused = document.activeElement;
  let next = parent.firstChild;
  for (const child of wanted) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
  // An element that is moved loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

let unique = 0;

/** Return a unique id, for an element to which another element refers. */
export function newId(prefix) {
  unique += 1;
  return `${prefix}-${unique}`;
}
