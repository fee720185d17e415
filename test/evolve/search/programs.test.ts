import { expect, it } from 'vitest';
import { printProgram } from '../../../src/policy/evolve/search/printer.ts';
import {
  crossPrograms,
  mutateProgram,
  numbersOf,
  withNumbers,
  withOneMoreTerm,
} from '../../../src/policy/evolve/search/programs.ts';
import { parse } from '../../../src/policy/sandbox/starlark/parser.ts';
import { StarlarkProgram } from '../../../src/policy/sandbox/starlark/starlarkPolicy.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';
import { RandomPrograms } from '../../sim/sandbox/starlark/randomPrograms.ts';
import { sized } from '../../sized.ts';

const seed = Number(process.env.TIERKV_SEED ?? 11);

/** The tree without lines, which printing moves. */
function shapeOf(source: string): string {
  return JSON.stringify(parse(source), (key, value) => (key === 'line' ? undefined : value));
}

/** Some of the random programs do not run, such as 5.upper(). */
function parses(source: string): boolean {
  try {
    parse(source);
    return true;
  } catch {
    return false;
  }
}

it(`a printed program parses to the same tree, over many random ones (seed ${seed})`, () => {
  const programs = new RandomPrograms(seed);
  let compared = 0;
  for (let i = 0; i < sized(600, 2000); i++) {
    const source = programs.program();
    if (!parses(source)) continue;
    compared++;
    const printed = printProgram(parse(source));
    expect(shapeOf(printed), source).toBe(shapeOf(source));
  }
  expect(compared).toBeGreaterThan(sized(450, 1500));
});

it.each([
  'x = (1,)\ny = ()\nz = 1, 2\n',
  'def f(a, b = 2, *, c, d = (1, 2), **more):\n    return a\n',
  'def f(*rest):\n    for i, (a, b) in enumerate(rest):\n        continue\n    return\n',
  'x = (lambda a, b = 1: a if b else (lambda: 0)())(1)\n',
  'x = not (1 < 2) == True\ny = -(-3) - (4 - 5)\nz = 2 * (3 % 4) // 5\n',
  'x = (1 if 2 else 3) if (4 if 5 else 6) else 7 or 8 and not 9\n',
  'x = [a for a in [1] if (a or 2) if not a for b in [3]]\n',
  'x = {k: [v, 1e21, 1e-9, 3.0, 0x10] for k, v in {"a\\n\\"": 1}.items()}\n',
  'x = [1, 2, 3][1:][::-1][:2]\ny = "a".upper() if False else "a" in "abc"\n',
  'def f(x):\n    if x > 1:\n        return 1\n    elif x > 0:\n        pass\n    else:\n        x += 1, 2\n    return x[0] << 2 | 1 & 3 ^ 4\n',
  'def f(x):\n    return f(1, *x, **{"a": 2}) if x not in [f(x, y = 1)] else ~x\n',
])('prints %j so that it reads the same', (source) => {
  const printed = printProgram(parse(source));
  expect(shapeOf(printed)).toBe(shapeOf(source));
});

const policy = `WEIGHT = 0.5

def route(request, instances, state):
    best = 0
    most = -1e9
    for i, instance in enumerate(instances):
        score = WEIGHT * instance.prefix - 0.1 * instance.queue_depth
        if instance.kv > 0.9 and score > 0:
            score = score - 2.0
        if score > most:
            best, most = i, score
    return best
`;

it('children of a program compile, differ from it, and name their mutation', () => {
  const random = new GoRandom(BigInt(seed));
  const texts = new Set<string>();
  let source = policy;
  for (let i = 0; i < 300; i++) {
    const child = mutateProgram(source, random);
    if (child === undefined) throw new Error(`seed ${seed}: nothing to change in\n${source}`);
    expect(child.source).not.toBe(source);
    expect(child.changes[0].length).toBeGreaterThan(0);
    new StarlarkProgram(child.source);
    texts.add(child.source);
    source = i % 10 === 9 ? policy : child.source;
  }
  expect(texts.size).toBeGreaterThan(200);
});

it('crossover takes expressions of the other parent, and only names that the child defines', () => {
  const other = policy
    .replace('0.1 * instance.queue_depth', 'instance.in_flight / (1 + instance.running)')
    .replace('WEIGHT', 'OTHER')
    .replace('WEIGHT *', 'OTHER *');
  const random = new GoRandom(BigInt(seed));
  let taken = 0;
  for (let i = 0; i < 100; i++) {
    const child = crossPrograms(policy, other, random);
    if (child === undefined) continue;
    expect(child.source).not.toContain('OTHER');
    new StarlarkProgram(child.source);
    if (/in_flight|running/.test(child.source)) taken++;
  }
  expect(taken).toBeGreaterThan(10);
});

it(`new terms weigh as their fields are large: tokens by the thousand beside shares (seed ${seed})`, () => {
  const random = new GoRandom(BigInt(seed));
  const known = { x: { share: 1, tokens: 1024 } };
  const source = 'def score(x):\n    return 0.5 * x.share\n';
  const other = 'def score(x):\n    return 2.0 * x.tokens\n';
  const weights: number[] = [];
  for (let i = 0; i < sized(1000, 2000); i++) {
    const child =
      i % 2 === 0 ? mutateProgram(source, random, known) : crossPrograms(source, other, random, known);
    const weight = child?.source.match(/[+-] \(?([\de.-]+) \* x\.tokens/)?.[1];
    if (weight !== undefined) weights.push(1024 * Number(weight));
  }
  expect(weights.length).toBeGreaterThan(100);
  weights.sort((a, b) => a - b);
  const median = weights[Math.floor(weights.length / 2)];
  expect(median).toBeGreaterThan(0.1);
  expect(median).toBeLessThan(2);
});

it('one more term is tried in each sum, with each favoured field and both signs, once each', () => {
  const source = `def score(x, y):
    busy = 0.5 * x.load / (1 + x.tokens) - y.least
    return 2.0 * (busy + x.share)

def other(z):
    return z
`;
  const known = { x: { load: 4, share: 1, tokens: 1024 }, y: { least: 4, most: 8 }, z: { load: 4 } };
  const favoured = { x: { tokens: 1024 }, y: { most: 8 }, z: { load: 4 } };
  const children = withOneMoreTerm(source, known, favoured);
  expect(children.map(({ changes }) => changes.join())).toEqual([
    '0.5 * x.load / (1 + x.tokens) - y.least + 0.0007813 * x.tokens',
    '0.5 * x.load / (1 + x.tokens) - y.least - 0.0007813 * x.tokens',
    '0.5 * x.load / (1 + x.tokens) - y.least + 0.1 * y.most',
    '0.5 * x.load / (1 + x.tokens) - y.least - 0.1 * y.most',
    '0.5 * x.load + 0.0003906 * x.tokens',
    '0.5 * x.load - 0.0003906 * x.tokens',
    '0.5 * x.load + 0.05 * y.most',
    '0.5 * x.load - 0.05 * y.most',
    '1 + x.tokens + 0.2 * x.tokens',
    '1 + x.tokens - 0.2 * x.tokens',
    '1 + x.tokens + 25.6 * y.most',
    '1 + x.tokens - 25.6 * y.most',
    '2.0 * (busy + x.share) + 0.0003906 * x.tokens',
    '2.0 * (busy + x.share) - 0.0003906 * x.tokens',
    '2.0 * (busy + x.share) + 0.05 * y.most',
    '2.0 * (busy + x.share) - 0.05 * y.most',
  ]);
  expect(new Set(children.map((child) => child.source)).size).toBe(16);
  for (const child of children) new StarlarkProgram(child.source);
  expect(withOneMoreTerm('def score(x):\n    return 1.0\n', known, favoured)).toEqual([]);
  expect(withOneMoreTerm('def score(', known, favoured)).toEqual([]);
});

it('a program whose conditions alone read an object is changed as any other', () => {
  const source = 'def rate(i):\n    if i.saturated:\n        return 0.5\n    return 1.0\n';
  const random = new GoRandom(BigInt(seed));
  for (let i = 0; i < 100; i++) {
    const child = mutateProgram(source, random, { request: { tokens: 100 } });
    expect(child?.source).toMatch(/^def rate/);
  }
});

it('text outside the marked lines stays, letter for letter', () => {
  const before = '# kept   as it is\nLIMIT = 3  # no number to search\n# EVOLVE-BLOCK-START\n';
  const after = '# EVOLVE-BLOCK-END\n\n\ndef other( a ):\n  return a\n';
  const source = before + policy + after;
  const random = new GoRandom(BigInt(seed));
  for (let i = 0; i < 50; i++) {
    const child = mutateProgram(source, random);
    expect(child?.source.startsWith(before), child?.source).toBe(true);
    expect(child?.source.endsWith(after), child?.source).toBe(true);
  }
  expect(numbersOf(source)).toEqual(numbersOf(policy));
});

it('without the second line, text before the first stays and the rest is open', () => {
  const before = 'LIMIT = 3\n# EVOLVE-BLOCK-END\n# EVOLVE-BLOCK-START\n';
  expect(numbersOf(before + policy)).toEqual(numbersOf(policy));
  const child = mutateProgram(before + policy, new GoRandom(BigInt(seed)));
  expect(child?.source.startsWith(before), child?.source).toBe(true);
});

it('numbers can be read and written in place', () => {
  expect(numbersOf(policy)).toEqual([0.5, 0, 1e9, 0.1, 0.9, 0, 2]);
  const changed = withNumbers(policy, [0.75, 0, 1e9, 0.25, 0.9, 0, 3.5]);
  expect(numbersOf(changed)).toEqual([0.75, 0, 1e9, 0.25, 0.9, 0, 3.5]);
  expect(withNumbers(policy, numbersOf(policy))).toBe(policy);
});
