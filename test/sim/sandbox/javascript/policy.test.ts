import { registerHooks } from 'node:module';
import { describe, expect, test } from 'vitest';
import { loadProgram } from '../../../../src/policy/sandbox/loadProgram.ts';
import type { PolicyInstance, Signature } from '../../../../src/policy/sandbox/program.ts';
import { thrownKind } from '../thrownKind.ts';

const route: Signature = {
  name: 'route',
  inputs: [
    { name: 'request', kind: 'record', fields: { tenant: 'text', tokens: 'int', urgent: 'bool' } },
    { name: 'candidates', kind: 'records', fields: { load: 'int', share: 'float', id: 'text' } },
  ],
  decision: { kind: 'index', of: 'candidates' },
};
const admit: Signature = {
  name: 'admit',
  inputs: [{ name: 'request', kind: 'record', fields: { tokens: 'int' } }],
  decision: { kind: 'choice', names: ['admit', 'reject', 'delay'], withAmount: ['delay'] },
};

async function instanceOf(source: string, budget = {}): Promise<PolicyInstance> {
  return (await loadProgram('javascript', source)).instantiate(budget);
}

async function admitting(body: string): Promise<() => number[]> {
  const policy = (await instanceOf(`function admit(request) { ${body} }`)).bind(admit);
  return () => [...policy.call()];
}

describe('a JavaScript policy', () => {
  // the host makes its arrays with the built-in objects of the program's world
  test.each([
    'Float64Array = Uint8Array;',
    'globalThis.Float64Array = class extends Uint32Array {};',
    'class Float64Array {}',
    'let Float64Array = Int32Array;',
    'function Float64Array() { return new Uint8Array(16); }',
    'delete globalThis.Float64Array;',
    'Object = { freeze: (x) => x };',
    'Array = null;',
    "Object.defineProperty(globalThis, 'Float64Array', { value: Uint16Array });",
  ])('cannot change what its inputs are made of: %s', async (change) => {
    const source = `${change} function route(request, candidates) { return 0; }`;
    const program = await loadProgram('javascript', source);
    expect(thrownKind(() => program.instantiate().bind(route))).toBe('policy_runtime');
  });

  test('reads the bytes of its numbers as integers', async () => {
    const source = `const number = new Float64Array(1);
const bytes = new Uint8Array(number.buffer);
function route(request, candidates) { number[0] = candidates.length; return bytes[6] === 0xf0 ? 0 : 1; }`;
    const policy = (await instanceOf(source)).bind(route);
    policy.inputs[1].resize(1);
    expect(policy.call()[0]).toBe(0);
    policy.inputs[1].resize(40);
    expect(policy.call()[0]).toBe(1);
  });

  test('sees rows as objects and fields by their kind', async () => {
    const source = `
function route({ tenant, urgent, tokens }, candidates) {
  if (tenant !== 'tenant é' || urgent !== true || tokens !== 7) throw new Error('request');
  const least = Math.min(...candidates.map(({ load }) => load));
  const found = candidates.findIndex(({ load }) => load === least);
  if (candidates[found].id !== 'id ' + least) throw new Error('candidates');
  return found;
}`;
    const policy = (await instanceOf(source)).bind(route);
    expect([policy.reads('candidates', 'load'), policy.reads('candidates', 'share')]).toEqual([true, false]);
    const [request, candidates] = policy.inputs;
    request.texts[request.field('tenant')] = 'tenant é';
    request.values[request.field('tokens')] = 7;
    request.values[request.field('urgent')] = 1;
    for (const loads of [[3, 2, 5], [1], [4, 4, 9, 2, 7, 8, 6, 5, 3, 1, 0, 2], Array(100).fill(6), [2, 1]]) {
      candidates.resize(loads.length);
      loads.forEach((load, i) => {
        candidates.values[i * candidates.width] = load;
        candidates.texts[i * candidates.width + candidates.field('id')] = `id ${load}`;
      });
      expect(policy.call()[0]).toBe(loads.indexOf(Math.min(...loads)));
    }
  });

  test('answers a choice, with an amount where the choice needs one', async () => {
    expect((await admitting('return "reject"'))()).toEqual([1, 0]);
    expect((await admitting('return ["delay", 2500]'))()).toEqual([2, 2500]);
  });

  test.each(['"delay"', '["admit", 1]', '"no"', '1', '["delay", "x"]', '["delay", NaN]', 'undefined', '{}'])(
    'cannot answer a choice by %s',
    async (value) => {
      expect(thrownKind(await admitting(`return ${value}`))).toBe('invalid_decision');
    },
  );

  test('has its variables, and all else it remembers, saved and put back', async () => {
    const source = `
let calls = 0;
const seen = new Map();
const next = (() => { let hidden = 0; return () => ++hidden; })();
function admit(request) {
  calls++;
  seen.set(request.tokens, [next(), 'x'.repeat(calls)]);
  return ['delay', calls + 1000 * seen.size + 1e6 * next() + [...seen.values()].at(-1)[0] / 8];
}`;
    const program = await loadProgram('javascript', source);
    const first = program.instantiate();
    const policy = first.bind(admit);
    const decide = (tokens: number) => {
      policy.inputs[0].values[0] = tokens;
      return policy.call()[1];
    };
    decide(1);
    const state = structuredClone(first.snapshot());
    const later = [decide(2), decide(3), decide(2)];
    first.restore(state);
    expect([decide(2), decide(3), decide(2)]).toEqual(later);

    // a second instance takes turns with the first in one engine
    const second = program.instantiate();
    const other = second.bind(admit);
    other.call();
    second.restore(state);
    first.restore(state);
    later.forEach((amount, i) => {
      const tokens = [2, 3, 2][i];
      expect(decide(tokens)).toBe(amount);
      other.inputs[0].values[0] = tokens;
      expect(other.call()[1]).toBe(amount);
    });
    expect(second.snapshot()).toEqual(first.snapshot());
  });

  test('finds no clock, chance, module or host', async () => {
    const numbers: Signature = { ...admit, name: 'run', decision: { kind: 'number' } };
    for (const body of [
      'Date.now()',
      'new Date()',
      'Math.random()',
      'setTimeout(() => 0)',
      'process.exit(1)',
      'require("fs")',
      'console.log(1)',
      'new WeakRef({})',
      'performance.now()',
      'eval("1")',
    ]) {
      const policy = (await instanceOf(`function run() { return ${body} }`)).bind(numbers);
      expect(
        thrownKind(() => policy.call()),
        body,
      ).toBe('policy_runtime');
    }
    await expect(loadProgram('javascript', 'import fs from "fs"')).rejects.toThrow(/^compile: line 1/);
  });

  test('breaks its contract by a missing function, and names the line of an error', async () => {
    const instance = await instanceOf('const admit = 3;\nfunction other() {}');
    expect(() => instance.bind(admit)).toThrow(
      'contract: the function admit is missing. Define it: function admit(request)',
    );
    await expect(loadProgram('javascript', 'let x = 1;\nlet x = 2;')).rejects.toThrow(/^compile: line 2: /);
    const failing = (await instanceOf('function admit(request) {\n  return request.none.x;\n}')).bind(admit);
    expect(() => failing.call()).toThrow(/^policy_runtime: line 2: TypeError: /);
  });

  test('names the package to install if the engine is missing', async () => {
    const missing = registerHooks({
      resolve(specifier, context, next) {
        if (specifier === 'quickjs-emscripten') throw new Error('not there');
        return next(specifier, context);
      },
    });
    try {
      await expect(loadProgram('javascript', '')).rejects.toThrow(
        'language javascript needs the package quickjs-emscripten, which is not installed. Install it: npm install',
      );
    } finally {
      missing.deregister();
    }
  });
});

test('a decision that is not a number names the missing field that it was computed from', async () => {
  const signature: Signature = { ...route, decision: { kind: 'numbers', of: 'candidates' } };
  const deciding = async (field: string): Promise<unknown> => {
    const source = `function route(request, candidates) { return candidates.map((c) => -c.${field}); }`;
    const policy = (await instanceOf(source)).bind(signature);
    policy.inputs[1].resize(1);
    return policy.call();
  };
  await expect(deciding('loads')).rejects.toThrow(
    /^invalid_decision: route returns NaN. Guard divisions by 0. The field loads does not exist: do you mean load\?$/,
  );
  await expect(deciding('pressure')).rejects.toThrow(/, and read no field that is not there$/);
  await expect(instanceOf('export function route() {}')).rejects.toThrow(/line 1: .*Write a plain script/);
});
