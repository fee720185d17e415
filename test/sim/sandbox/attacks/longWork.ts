/**
 * JavaScript in which few calls and jumps keep an engine busy for long: built-in methods and operators over long
 * texts, long or sparse arrays, values that are shared many times, and numbers of many digits.
 */

const shared = 'let a = []; for (let i = 0; i < 40; i++) a = [a, a];';
const text = 'const s = "x".repeat(400_000);';
const numbers = 'const f = new Float64Array(100_000);';
const list = 'const l = Array.from({ length: 20_000 }, (_, i) => i);';

/** By what is slow, the body of a function that never ends in time. */
export const longWork: Readonly<Record<string, string>> = {
  'text repeated': 'for (;;) "x".repeat(1_000_000);',
  'texts joined': `${text} for (let i = 0; ; i++) (s + i + s).charCodeAt(500_000);`,
  'text padded': 'for (;;) "x".padEnd(1_000_000, "yz");',
  'text searched': `${text} for (;;) s.indexOf("y");`,
  'text searched for a long text': 'return "x".repeat(400_000).indexOf("x".repeat(200_000) + "y");',
  'text searched from its end': `${text} for (;;) s.lastIndexOf("y");`,
  'text split': `${text} for (;;) s.split("y");`,
  'text replaced': `${text} for (;;) s.replaceAll("y", "z");`,
  'text in capitals': `${text} for (;;) s.toUpperCase();`,
  'text trimmed': 'const s = " ".repeat(400_000); for (;;) s.trim();',
  'text cut': `${text} for (let i = 0; ; i = (i + 1) % 9) s.slice(i);`,
  'texts compared': `${text} const t = s.slice(1) + "x"; for (;;) if (s < t) break;`,
  'texts that are equal': `${text} const t = s.slice(1) + "x"; while (s === t);`,
  'text as a number': 'const s = "1".repeat(400_000); for (;;) Number(s);',
  'text as a key': `${text} const m = new Map(); for (;;) m.get(s.slice(1));`,
  'text as a property': `${text} const o = {}; for (let i = 0; ; i++) o[s.slice(i % 9)];`,
  'text in a URL': `${text} for (;;) encodeURIComponent(s);`,
  'text of well-formed characters': `${text} for (;;) s.isWellFormed();`,
  'text of many characters': 'const c = Array(9_999).fill(120); for (;;) String.fromCharCode(...c);',
  'text spread': `${text} for (;;) [...s];`,
  'sparse array searched': 'const a = []; a[4294967294] = 1; return a.indexOf(2);',
  'sparse array reversed': 'const a = []; a[4294967294] = 1; return a.reverse().length;',
  'sparse array joined': 'return Array(4294967295).join("").length;',
  'array-like thing searched': 'return [].includes.call({ length: 2 ** 53 - 1 }, 1);',
  'array-like thing appended':
    'return [].concat({ length: 2 ** 32, [Symbol.isConcatSpreadable]: true }).length;',
  'array-like thing as an array': 'for (;;) try { Array.from({ length: 2 ** 32 }); } catch {}',
  'array-like thing as arguments': 'for (;;) Math.max.apply(null, { length: 60_000 });',
  'array flattened': `${shared} return a.flat(Infinity).length;`,
  'array as a text': `${shared} return String(a).length;`,
  'array as JSON': `${shared} return JSON.stringify(a).length;`,
  'array sorted': `${list} for (;;) l.sort();`,
  'array of long texts sorted':
    'const s = "x".repeat(9_000); return Array.from({ length: 99 }, (_, i) => s + (i % 7)).sort(() => 0).sort().sort().sort().sort().sort().sort().length;',
  'array spread': `${list} for (;;) [...l, ...l];`,
  'array as arguments': `${list} for (;;) Math.max(...l);`,
  'array moved by one': `${list} for (;;) { l.unshift(1); l.shift(); }`,
  'array cut': `${list} for (;;) l.slice();`,
  'array filled': `${list} for (;;) l.fill(1);`,
  'array with one changed': `${list} for (;;) l.with(1, 2);`,
  'array of numbers sorted': `${numbers} for (;;) f.sort();`,
  'array of numbers filled': `${numbers} for (;;) f.fill(1);`,
  'array of numbers copied': `${numbers} for (;;) f.slice();`,
  'array of numbers moved': `${numbers} for (;;) f.copyWithin(0, 1);`,
  'array of numbers reversed': `${numbers} for (;;) f.reverse();`,
  'array of numbers searched': `${numbers} for (;;) f.indexOf(1);`,
  'array of numbers joined': `${numbers} for (;;) f.join();`,
  'array of numbers out of another': `${numbers} for (;;) new Float64Array(f);`,
  'JSON read': 'const s = "[" + "1,".repeat(40_000) + "1]"; for (;;) JSON.parse(s);',
  'JSON written': `${list} for (;;) JSON.stringify(l);`,
  'big integers multiplied': 'let x = 3n; for (let i = 0; i < 15; i++) x *= x; for (;;) x * x;',
  'big integers divided': 'let x = 3n; for (let i = 0; i < 15; i++) x *= x; for (;;) (x * x) % (x + 1n);',
  'big integers raised': 'for (;;) 3n ** 100_000n;',
  'big integers as text': 'let x = 3n; for (let i = 0; i < 17; i++) x *= x; return String(x).length;',
  'big integers out of text': 'for (;;) BigInt("9".repeat(60_000));',
  'properties listed': `${list} const o = { ...l }; for (;;) Object.keys(o);`,
  'properties copied': `${list} for (;;) Object.assign({}, l);`,
  'properties frozen': `for (;;) { ${list} Object.freeze(l); }`,
  'properties walked': `${list} for (;;) for (const k in l) break;`,
  'prototypes one above the other':
    'let o = {}; for (let i = 0; i < 9_000; i++) o = Object.create(o); for (;;) o.x;',
  'maps made': `${list} const e = l.map((i) => [i, i]); for (;;) new Map(e);`,
  'sets made': `${list} for (;;) new Set(l);`,
  'functions bound': 'let f = () => 1; for (let i = 0; i < 9_000; i++) f = f.bind(null, i); for (;;) f();',
  'code out of text': 'const s = "1;".repeat(20_000); for (;;) Function(s);',
};
