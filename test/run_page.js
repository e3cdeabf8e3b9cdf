// Runs the scripts of a page, given as an argument, without a browser: every element is one that takes anything, so that what
// fails is what the page computes. page_kit.c runs it where there is Node.
'use strict';
const page = require('fs').readFileSync(process.argv[2], 'utf8');
const texts = [...page.matchAll(/<script([^>]*)>\n([\s\S]*?)<\/script>/g)];
const json = texts.find(t => t[1].includes('id="data"'))[2], code = texts.filter(t => !t[1].includes('id="data"')).map(t => t[2]).join('\n');
const answers = { clientWidth: 800, [Symbol.toPrimitive]: () => '', [Symbol.iterator]: undefined };
const element = new Proxy(function () {}, { get: (_, k) => k in answers ? answers[k] : element, set: () => true, apply: () => element, construct: () => element });
const document = { getElementById: id => id === 'data' ? { textContent: json } : element, createElement: () => element, createElementNS: () => element };
new Function('document', 'ResizeObserver', 'addEventListener', code)(document, element, () => {});
