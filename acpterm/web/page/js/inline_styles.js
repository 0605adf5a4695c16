// Lets xterm.js style its elements under a Content-Security-Policy that forbids inline styles.
//
// xterm.js fills `<style>` elements and sets `style` attributes, which the policy blocks. The policy
// allows setting the same styles through the CSS object model. So a script that creates a `<style>`
// element gets an invisible element of another kind, whose text is put into a style sheet of the
// document until the element is removed. A `style` attribute that a script sets is set as
// `style.cssText`.

/** Replace the functions that create `<style>` elements and set `style` attributes, page-wide. */
export function allowInlineStyles() {
  const createElement = Document.prototype.createElement;
  Document.prototype.createElement = function (name, ...rest) {
    return name === "style"
      ? asStyle(createElement.call(this, "template"))
      : createElement.call(this, name, ...rest);
  };
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
}

function asStyle(element) {
  const sheet = new CSSStyleSheet();
  let text = "";
  const withoutSheet = () => document.adoptedStyleSheets.filter((one) => one !== sheet);
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set: (value) => {
      text = value;
      sheet.replaceSync(value);
      document.adoptedStyleSheets = [...withoutSheet(), sheet];
    },
  });
  element.remove = function () {
    document.adoptedStyleSheets = withoutSheet();
    Element.prototype.remove.call(this);
  };
  return element;
}
