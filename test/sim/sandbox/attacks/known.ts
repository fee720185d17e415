/** Attacks that are known from other sandboxes, in each language, and the kinds of error that may end them. */

import type { PolicyLanguage } from '../../../../src/policy/sandbox/program.ts';
import { isInstalled } from '../../../extras.ts';
import { assemble, moduleWith, policyText } from '../wasm/fromText.ts';

export interface Attack {
  readonly language: PolicyLanguage;
  readonly name: string;
  readonly source: string;
  /** Kinds of error, or `decided`. */
  readonly ends: readonly string[];
}

const star = (name: string, body: string, ...ends: string[]): Attack => ({
  language: 'starlark',
  name,
  source: `def run(input):\n${body.replace(/^/gm, '    ')}\n`,
  ends,
});
const script = (name: string, source: string, ...ends: string[]): Attack => ({
  language: 'javascript',
  name,
  source,
  ends,
});
const js = (name: string, body: string, ...ends: string[]): Attack =>
  script(name, `function run(input) { ${body} }`, ...ends);
const module = (name: string, text: string, ...ends: string[]): Attack => ({
  language: 'wasm',
  name,
  // without binaryen there are no attacks in WebAssembly: attacks.test.ts leaves them out
  source: isInstalled('binaryen') ? Buffer.from(assemble(text)).toString('base64') : '',
  ends,
});
const wasm = (name: string, body: string, ...ends: string[]): Attack =>
  module(name, policyText(`(func $run (export "run") (param i32) (result f64) ${body})`), ...ends);

const raw = (body: readonly number[]): Pick<Attack, 'language' | 'source'> => ({
  language: 'wasm',
  source: Buffer.from(moduleWith(body)).toString('base64'),
});

/** f64.const 0 */
const zero = [0x44, 0, 0, 0, 0, 0, 0, 0, 0] as const;

function nestedBlocks(count: number): number[] {
  return [...Array(count).fill([2, 0x40]).flat(), ...Array(count).fill(0x0b), ...zero];
}

const LIMITS = ['step_limit', 'memory_limit'];
const deep = (open: string, close: string, count: number, inner = '1'): string =>
  open.repeat(count) + inner + close.repeat(count);

const long = 'x = "a" * 400000\n';
const loop = 'for i in range(9000):\n    ';

const starlark: readonly Attack[] = [
  star('nested loops', 'for a in range(9999):\n    for b in range(9999):\n        pass', ...LIMITS),
  { ...star('recursion', ''), source: 'def run(input):\n    return run(input)\n', ends: ['policy_runtime'] },
  {
    ...star('recursion of two', ''),
    source: 'def a(x):\n    return run(x)\ndef run(input):\n    return a(input)\n',
    ends: ['policy_runtime'],
  },
  star('a key that doubles', 'a = (1,)\nfor i in range(40):\n    a = (a, a)\nreturn len({a: 1})', ...LIMITS),
  star('a key of long texts', `${long}return len({tuple([x] * 1000): 1})`, 'memory_limit'),
  star('a long key again and again', `t = tuple(range(40000))\nd = {}\n${loop}d[t] = i`, ...LIMITS),
  star('long texts sorted', `${long}l = [x, x + "b"] * 4\n${loop}sorted(l)`, ...LIMITS),
  star('long texts compared', `${long}y = "a" * 399999 + "b"\n${loop}x == y`, ...LIMITS),
  star('long texts ordered', `${long}y = x + "b"\n${loop}x < y`, ...LIMITS),
  star('long beginnings', `${long}t = tuple(["a" * 4000 + "b"] * 400)\n${loop}x.startswith(t)`, ...LIMITS),
  star('many characters stripped', `${long}${loop}"b".strip(x)`, ...LIMITS),
  star(
    'a part that is nearly there',
    'return ("a" * 90000).find("a" * 22000 + "b" + "a" * 22000)',
    ...LIMITS,
  ),
  star('words from the end', 'return len(("a " * 45000).rsplit(None, 40000))', 'decided'),
  star('a long float', `x = "0." + "0" * 400000\n${loop}float(x)`, ...LIMITS),
  star('a list that doubles', 'l = [0]\nfor i in range(60):\n    l += l\nreturn 1', ...LIMITS),
  star('a text that doubles', 's = "x"\nfor i in range(60):\n    s += s\nreturn 1', ...LIMITS),
  star('a huge text', 'return len("x" * 9007199254740991)', 'memory_limit'),
  star('deep parentheses', `return ${deep('(', ')', 20_000)}`, 'compile'),
  star('deep lists', `return ${deep('[', ']', 20_000)}`, 'compile'),
  star('many signs', `return ${'-'.repeat(50_000)}1`, 'compile'),
  star('a long chain', `return ${'1 + '.repeat(30_000)}1`, 'compile', 'step_limit', 'decided'),
  star('deep conditions', `return ${'1 if 1 else '.repeat(20_000)}1`, 'compile'),
  star('the constructor', 'return input.constructor', 'policy_runtime', 'compile'),
  star('the prototype', 'return input.__proto__', 'policy_runtime', 'compile'),
  star('a field by name', 'return getattr(input, "__proto__")', 'policy_runtime', 'compile'),
  star('a key of the prototype', 'return {}["__proto__"]', 'policy_runtime'),
  star(
    'writing the prototype',
    'd = {}\nd["__proto__"] = {"x": 1}\nd["constructor"] = 1\nreturn len(d)',
    'decided',
  ),
  star('a format that reaches in', 'return len("{0.__class__}".format(input))', 'policy_runtime'),
  star('an import', 'load("os", "system")\nreturn 1', 'compile'),
  star('a Python import', 'import os\nreturn 1', 'compile'),
  star('evaluation', 'return eval("1")', 'compile'),
  star('writing to an input', 'input.x = 1\nreturn 1', 'compile', 'policy_runtime'),
  star('a loop over what it changes', 'l = [1]\nfor x in l:\n    l.append(x)\nreturn 1', 'policy_runtime'),
  star('sorting without end', 'return len(sorted(range(90000), key = lambda x: -x))', ...LIMITS),
  {
    ...star('code in a name', ''),
    source: 'def run(input):\n    return `1`; process.exit()\n',
    ends: ['compile'],
  },
  {
    ...star('a line break in a text', ''),
    source: 'X = "\\u2028\\u0000\\\\"\ndef run(input):\n    return len(X)\n',
    ends: ['decided', 'compile'],
  },
];

const javascript: readonly Attack[] = [
  js('a loop', 'for (;;);', 'step_limit'),
  js('a loop that catches', 'for (;;) { try { for (;;); } catch { } finally { continue; } }', 'step_limit'),
  js('recursion', 'return run(input);', 'policy_runtime'),
  js(
    'recursion that catches',
    'try { return run(input); } catch { return run(input); }',
    'step_limit',
    'policy_runtime',
  ),
  js('recursion through a getter', 'return ({ get x() { return this.x; } }).x;', 'policy_runtime'),
  js('arrays', 'const a = []; for (;;) a.push(new Array(1000).fill(0));', ...LIMITS),
  js('small objects', 'let a = null; for (;;) a = { a };', ...LIMITS),
  js('closures', 'let f = () => 0; for (;;) { const g = f; f = () => g; }', ...LIMITS),
  js('a text that doubles', 'let s = "x"; for (;;) s += s;', 'policy_runtime', ...LIMITS),
  js('flat texts', 'let s = "x"; const a = []; for (let i = 0;; i++) a.push(s.repeat(999) + i);', ...LIMITS),
  js('a huge array', 'return new Float64Array(1e9).length;', 'memory_limit', 'policy_runtime'),
  js('a huge text', 'return "x".repeat(2 ** 29).length;', 'memory_limit', 'policy_runtime'),
  js(
    'a sparse array',
    'const a = []; a[4294967294] = 1; return a.join().length;',
    'policy_runtime',
    ...LIMITS,
  ),
  js('a big integer', 'let x = 3n; for (;;) x *= x;', 'policy_runtime', ...LIMITS),
  js(
    'nested values as text',
    'let a = []; for (let i = 0; i < 9000; i++) a = [a]; return String(a).length;',
    'policy_runtime',
  ),
  js(
    'nested values as JSON',
    'let a = 0; for (let i = 0; i < 9000; i++) a = { a }; return JSON.stringify(a).length;',
    'policy_runtime',
    'step_limit',
  ),
  js('nested JSON read', 'return JSON.parse("[".repeat(9999)).length;', 'policy_runtime'),
  js('a function out of text', 'return Function("for (;;);")();', 'step_limit'),
  js(
    'the constructor of a function',
    'return input.constructor.constructor("return typeof process")().length',
    'decided',
  ),
  js('evaluation', 'return eval("1")', 'policy_runtime'),
  js(
    'an error that never tells',
    'throw { get message() { for (;;); }, get name() { for (;;); } };',
    'policy_runtime',
    'step_limit',
  ),
  js('an error without end', 'const e = {}; e.e = e; throw e;', 'policy_runtime'),
  js('nothing thrown', 'throw undefined;', 'policy_runtime'),
  js('a value that becomes a number', 'return { valueOf() { return 1; } };', 'invalid_decision'),
  js('writing to an input', 'input.x = 1; return 1;', 'policy_runtime'),
  js('its class changed', 'Object.getPrototypeOf(input).x = 1; return 1;', 'policy_runtime'),
  js('an import', 'return import("fs");', 'policy_runtime', 'invalid_decision'),
  js('waiting', 'return (async () => { await 1; })();', 'policy_runtime', 'invalid_decision'),
  js('a generator without end', 'return [...(function* () { for (;;) yield 1; })()].length;', ...LIMITS),
  js(
    'an iterator without end',
    'return Math.max(...{ [Symbol.iterator]: () => ({ next: () => ({ value: 1 }) }) });',
    ...LIMITS,
  ),
  js(
    'sorting that lies',
    'return Array.from({ length: 99 }, (_, i) => i).sort(() => { for (;;); }).length',
    'step_limit',
  ),
  js('deep parentheses', `return ${deep('(', ')', 20_000)}`, 'compile'),
  js('deep arrays', `return ${deep('[', ']', 20_000)}.length`, 'compile'),
  js('deep functions', `return ${'() => '.repeat(20_000)}1`, 'compile', 'invalid_decision'),
  js('many signs', `return ${'- '.repeat(50_000)}1`, 'compile', 'decided'),
  js('deep blocks', deep('{', '}', 20_000, ''), 'compile', 'invalid_decision'),
  script('a static import', 'import fs from "fs"; function run() {}', 'compile'),
  script('a loop at the top', 'for (;;);', 'step_limit'),
  script('memory at the top', 'const a = []; for (;;) a.push(new Array(1000).fill(0));', ...LIMITS),
  script(
    'prototypes of everything changed',
    `for (const one of [Object, Array, Function, String, Number, Map, Float64Array]) {
       for (const name of Object.getOwnPropertyNames(one.prototype)) {
         try { one.prototype[name] = () => { throw 1; }; } catch {}
       }
     }
     function run(input) { return 1; }`,
    'decided',
    'policy_runtime',
    'contract',
  ),
  script(
    'the tools of the host changed',
    `Object.freeze = Array.isArray = () => true; Object.defineProperty(Array.prototype, 0, { set() {} });
     Float64Array = null; function run(input) { return 1; }`,
    'decided',
    'policy_runtime',
  ),
  script('much source', `const x = "${'y'.repeat(300_000)}"; function run() { return 1; }`, 'compile'),
];

const modules: readonly Attack[] = [
  wasm('a loop', '(loop $l (br $l)) (f64.const 0)', 'step_limit'),
  wasm('recursion', '(call $run (local.get 0))', 'policy_runtime'),
  wasm('memory', '(loop $l (drop (memory.grow (i32.const 1))) (br $l)) (f64.const 0)', 'memory_limit'),
  wasm('all memory at once', '(drop (memory.grow (i32.const 65535))) (f64.const 0)', 'memory_limit'),
  wasm(
    'filling',
    '(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l)) (f64.const 0)',
    'step_limit',
  ),
  wasm(
    'overlapping copies',
    '(loop $l (memory.copy (i32.const 1) (i32.const 0) (i32.const 65535)) (br $l)) (f64.const 0)',
    'step_limit',
  ),
  wasm('reading outside', '(f64.load (i32.const 0x7fffffff))', 'policy_runtime'),
  wasm('nothing', '(unreachable)', 'policy_runtime'),
  wasm('NaN', '(f64.const nan)', 'invalid_decision'),
  module('an import', '(module (import "env" "f" (func)) (memory (export "memory") 1))', 'compile'),
  module(
    'a line break in a name',
    '(module (import "a\\0a\\e2\\80\\a8b" "f" (func)) (memory (export "memory") 1))',
    'compile',
  ),
  module('much memory', policyText('', 60_000), 'memory_limit', 'contract'),
  module('an endless start', policyText('(func $s (loop $l (br $l))) (start $s)'), 'step_limit'),
  module(
    'a table of itself',
    policyText(`(table 1 1 funcref) (elem (i32.const 0) $f)
    (func $f (param i32) (result f64) (call_indirect (param i32) (result f64) (local.get 0) (i32.const 0)))
    (func (export "run") (param i32) (result f64) (call $f (local.get 0)))`),
    'policy_runtime',
  ),
  module('recursion at the start', policyText('(func $s (call $s)) (start $s)'), 'policy_runtime'),
  module(
    'an alloc that loops',
    `(module (memory (export "memory") 1)
    (func (export "alloc") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))
    (func (export "run") (param i32) (result f64) (f64.const 0)))`,
    'step_limit',
  ),
  wasm(
    'wide frames',
    `${'(f64.const 1) '.repeat(1_900)} (call $run (local.get 0)) ${'f64.add '.repeat(1_900)}`,
    'policy_runtime',
  ),
  { ...raw([0x3f, 0x80, 0x00, 0x1a, ...zero]), name: 'a long number of the memory', ends: ['compile'] },
  { ...raw([0x41, 0, 0x2b, 0x43, 0, 0]), name: 'another memory', ends: ['compile'] },
  { ...raw([0x41, 0, 0x2b, 0x43, 0, 0x41, 0x0c, 0, ...zero]), name: 'code in an offset', ends: ['compile'] },
  {
    ...raw([0x41, 0, 0x41, 0, 0x11, 0, 0x80, 0, ...zero]),
    name: 'a long number of the table',
    ends: ['compile'],
  },
  { ...raw(nestedBlocks(900)), name: 'deep blocks', ends: ['decided'] },
  { ...raw(nestedBlocks(50_000)), name: 'very deep blocks', ends: ['compile'] },
  { language: 'wasm', name: 'no base64', source: 'é', ends: ['compile'] },
  {
    language: 'wasm',
    name: 'a length without end',
    source: btoa('\0asm\x01\0\0\0\x01\xff\xff\xff\xff\xff\xff'),
    ends: ['compile'],
  },
];

export const attacks: readonly Attack[] = [...starlark, ...javascript, ...modules];
