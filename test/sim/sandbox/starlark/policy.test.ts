import { describe, expect, test } from 'vitest';
import { loadProgram } from '../../../../src/policy/sandbox/loadProgram.ts';
import type { PolicyInstance, Signature } from '../../../../src/policy/sandbox/program.ts';
import { thrownKind } from '../thrownKind.ts';

const route: Signature = {
  name: 'route',
  inputs: [
    { name: 'request', kind: 'record', fields: { tenant: 'text', tokens: 'int', urgent: 'bool' } },
    { name: 'candidates', kind: 'records', fields: { load: 'int', share: 'float' } },
  ],
  decision: { kind: 'index', of: 'candidates' },
};
const admit: Signature = {
  name: 'admit',
  inputs: [{ name: 'request', kind: 'record', fields: { tokens: 'int' } }],
  decision: { kind: 'choice', names: ['admit', 'reject', 'delay'], withAmount: ['delay'] },
};

async function instanceOf(source: string, budget = {}): Promise<PolicyInstance> {
  return (await loadProgram('starlark', source)).instantiate(budget);
}

async function admitting(body: string): Promise<() => number[]> {
  const policy = (await instanceOf(`def admit(request):\n    ${body}\n`)).bind(admit);
  return () => [...policy.call()];
}

describe('a Starlark policy', () => {
  test('sees rows as records and fields by their kind', async () => {
    const source = `
def route(request, candidates):
    if request.tenant != "a" or request.urgent != True or type(request.tokens) != "int":
        fail("request")
    if type(candidates[0].share) != "float":
        fail("candidates")
    best = 0
    for i in range(len(candidates)):
        if candidates[i].load < candidates[best].load:
            best = i
    return best
`;
    const policy = (await instanceOf(source)).bind(route);
    const [request, candidates] = policy.inputs;
    request.texts[request.field('tenant')] = 'a';
    request.values.set([0, 7, 1]);
    for (const loads of [[3, 2, 5], [1], [4, 4, 9, 2, 7, 8, 6, 5, 3, 1, 0, 2]]) {
      candidates.resize(loads.length);
      for (let i = 0; i < loads.length; i++) candidates.values.set([loads[i], 1], i * candidates.width);
      expect(policy.call()[0]).toBe(loads.indexOf(Math.min(...loads)));
    }
  });

  test('answers a choice, with an amount where the choice needs one', async () => {
    expect((await admitting('return "reject"'))()).toEqual([1, 0]);
    expect((await admitting('return ("delay", 2500)'))()).toEqual([2, 2500]);
  });

  test.each(['return "delay"', 'return ("admit", 1)', 'return "no"', 'return 1', 'return ("delay", "x")'])(
    'cannot answer a choice by %s',
    async (body) => {
      expect(thrownKind(await admitting(body))).toBe('invalid_decision');
    },
  );

  test('has its state written down and put back, shared lists and floats included', async () => {
    const source = `
def admit(request, state):
    if "seen" not in state:
        state["seen"] = [1.0, (2, None), {"k": True}]
        state["same"] = state["seen"]
    state["same"].append(request.tokens)
    return ("delay", len(state["seen"]) + state["seen"][0])
`;
    const program = await loadProgram('starlark', source);
    const instance = program.instantiate();
    const policy = instance.bind(admit);
    expect(instance.snapshot()).toBe(null);
    expect(policy.call()[1]).toBe(5);
    const state = structuredClone(instance.snapshot());
    expect(policy.call()[1]).toBe(6);
    const other = program.instantiate();
    const again = other.bind(admit);
    other.restore(JSON.parse(JSON.stringify(state)));
    expect(again.call()[1]).toBe(6);
    expect(other.snapshot()).toEqual(instance.snapshot());
    instance.restore(state);
    expect(policy.call()[1]).toBe(6);
  });

  test('keeps plain values only, few enough, without circles', async () => {
    const keeping = async (body: string, budget = {}) => {
      const policy = (
        await instanceOf(`def admit(request, state):\n    ${body}\n    return "admit"\n`, budget)
      ).bind(admit);
      return () => {
        for (let i = 0; i < 100; i++) policy.call();
      };
    };
    expect(thrownKind(await keeping('state["r"] = request'))).toBe('policy_runtime');
    expect(thrownKind(await keeping('state["f"] = len'))).toBe('policy_runtime');
    expect(thrownKind(await keeping('state["s"] = state'))).toBe('policy_runtime');
    const grow = 'state["n"] = state.get("n", []) + [0] * 50';
    expect(thrownKind(await keeping(grow, { memoryUnits: 3_000 }))).toBe('memory_limit');
    expect(thrownKind(await keeping('state[len(state)] = 0', { steps: 150 }))).toBe('step_limit');
  });

  test('can change its state again after a call failed in a loop over it', async () => {
    const source = `
def admit(request, state):
    state["n"] = 1
    for key in state:
        if request.tokens == 1:
            fail("stop")
    return "admit"
`;
    const policy = (await instanceOf(source)).bind(admit);
    policy.inputs[0].values[0] = 1;
    expect(thrownKind(() => policy.call())).toBe('policy_runtime');
    policy.inputs[0].values[0] = 0;
    expect(policy.call()[0]).toBe(0);
  });

  test('breaks its contract by a missing function or other parameters', async () => {
    for (const source of ['x = 1\n', 'def admit():\n    return "admit"\n', 'admit = 3\n']) {
      const instance = await instanceOf(source);
      expect(thrownKind(() => instance.bind(admit))).toBe('contract');
    }
  });
});

test('a tuple as a key costs the same in a fork that has not made its text yet', async () => {
  const source = `
def admit(request, state):
    key = state.setdefault("key", tuple([("tenant", i) for i in range(50)]))
    counts = {key: 1}
    return "admit" if counts[key] == 1 else "reject"
`;
  const program = await loadProgram('starlark', source);
  const [here, fork] = [program.instantiate(), program.instantiate()];
  const [policy, forked] = [here.bind(admit), fork.bind(admit)];
  policy.call();
  fork.restore(here.snapshot());
  policy.call();
  forked.call();
  expect([fork.stepsUsed, fork.memoryUsed]).toEqual([here.stepsUsed, here.memoryUsed]);
});

describe('a program that misuses its inputs gets an error that names their kinds', () => {
  const body = (line: string): string => `def route(request, candidates):\n    ${line}\n`;
  test.each([
    [
      'return candidates.load',
      /tuple has no field or method load. It holds records of candidates: \[x\.load for/,
    ],
    ['return request["tokens"]', /a record of request has fields and no elements. Write x\.tokens/],
    ['return request.get("tokens", 0)', /request has no field get. A record is not a dict: write x\.tenant/],
    ['return request.toString', /request has no field toString. Its fields are tenant, tokens, urgent/],
    ['request.tokens = 1', /Fields are read-only; a dict has keys/],
    ['return candidates[0]', /route returns a record of candidates. Return an int from 0 to 1/],
    ['x = 1', /route returns NoneType, as without "return" on its way. Return an int from 0 to 1/],
  ])('%s', async (line, message) => {
    const deciding = async (): Promise<unknown> => {
      const policy = (await instanceOf(body(line))).bind(route);
      policy.inputs[1].resize(2);
      return policy.call();
    };
    await expect(deciding()).rejects.toThrow(message);
  });

  test('and a function with other parameters, which they are', async () => {
    const instance = await instanceOf('def route(candidates):\n    return 0\n');
    expect(() => instance.bind(route)).toThrow(
      'contract: route gets 2 arguments in a policy. Define it: def route(request, candidates)',
    );
  });

  test('a Markdown fence does not compile', async () => {
    await expect(instanceOf('```python\nx = 1\n```')).rejects.toThrow(
      /line 1: the text stands in a Markdown fence/,
    );
  });
});
