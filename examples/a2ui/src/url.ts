// @cfworker/json-schema resolves `$ref` by `URL`, which QuickJS has not. What it uses of it is here: absolute addresses stay
// as they are, relative ones take the place of the last segment. It must be imported before the library.

class SchemaUrl {
  href: string;

  constructor(reference: string, base = "") {
    if (/^[a-z][a-z0-9+.-]*:/i.test(reference)) this.href = reference;
    else if (reference.startsWith("#")) this.href = base.replace(/#.*$/s, "") + reference;
    else this.href = base.replace(/#.*$/s, "").replace(/[^/]*$/, "") + reference;
  }

  get hash(): string {
    const at = this.href.indexOf("#");
    return at < 0 || at === this.href.length - 1 ? "" : this.href.slice(at);
  }

  set hash(fragment: string) {
    const text = fragment.replace(/^#/, "");
    this.href = this.href.replace(/#.*$/s, "") + (text ? `#${text}` : "");
  }
}

declare global {
  interface URL extends SchemaUrl {}
}

Object.assign(globalThis, { URL: SchemaUrl });

export {};
