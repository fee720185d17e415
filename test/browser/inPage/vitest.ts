/**
 * As much of vitest as the contract of tier stores needs, for suites that run in a page: a build puts it in vitest's place.
 * Its matchers compare as vitest's do; `suiteResults` runs what was declared and tells how each test ended.
 */

/** What a test gets: `skip` ends it there. */
interface TestContext {
  skip(why?: string): never;
}

type Act = (context: TestContext) => unknown;

class Skipped extends Error {}

const context: TestContext = {
  skip(why = '') {
    throw new Skipped(why);
  },
};

interface Suite {
  readonly name: string;
  readonly before: Act[];
  readonly after: Act[];
  readonly tests: { readonly name: string; readonly act: Act }[];
}

export interface TestEnd {
  readonly name: string;
  /** Empty for a test that passed. */
  readonly problem: string;
  readonly isSkipped: boolean;
}

const suites: Suite[] = [];
let current: Suite | undefined;

export function describe(name: string, declare: () => unknown): void {
  const outer = current;
  current = {
    name: outer === undefined ? name : `${outer.name} > ${name}`,
    before: [...(outer?.before ?? [])],
    after: [...(outer?.after ?? [])],
    tests: [],
  };
  suites.push(current);
  declare();
  current = outer;
}

function declareTest(name: string, act: Act): void {
  current!.tests.push({ name, act });
}

export const it: typeof declareTest & {
  skipIf(skips: boolean): typeof declareTest;
  runIf(runs: boolean): typeof declareTest;
} = Object.assign(declareTest, {
  skipIf: (skips: boolean) => (skips ? () => {} : declareTest),
  runIf: (runs: boolean) => (runs ? declareTest : () => {}),
});
export const beforeEach = (act: Act): void => void current!.before.push(act);
export const afterEach = (act: Act): void => void current!.after.push(act);

class Containing {
  readonly fields: object;

  constructor(fields: object) {
    this.fields = fields;
  }
}

function equal(found: unknown, wanted: unknown): boolean {
  if (Object.is(found, wanted)) return true;
  if (typeof found !== 'object' || typeof wanted !== 'object' || found === null || wanted === null)
    return false;
  if (wanted instanceof Containing) {
    return Object.entries(wanted.fields).every(([key, value]) => equal(Reflect.get(found, key), value));
  }
  if (found.constructor !== wanted.constructor) return false;
  if (found instanceof Set && wanted instanceof Set) {
    return (
      found.size === wanted.size && [...wanted].every((each) => [...found].some((own) => equal(own, each)))
    );
  }
  const keys = (of: object): string[] => Object.keys(of).filter((key) => Reflect.get(of, key) !== undefined);
  const wantedKeys = keys(wanted);
  return (
    keys(found).length === wantedKeys.length &&
    wantedKeys.every((key) => equal(Reflect.get(found, key), Reflect.get(wanted, key)))
  );
}

const shown = (value: unknown): string => {
  const plain = value instanceof Set ? [...value] : value;
  return (JSON.stringify(plain) ?? String(plain)).slice(0, 300);
};

function matchers(
  found: unknown,
  message: string,
  isNot: boolean,
): Record<string, (wanted: unknown) => void> {
  const check = (name: string, holds: (wanted: unknown) => boolean) => (wanted: unknown) => {
    if (holds(wanted) === isNot) {
      throw new Error(`${message}: ${shown(found)} ${isNot ? 'is' : 'is not'} ${name} ${shown(wanted)}`);
    }
  };
  return {
    toBe: check('the same as', (wanted) => Object.is(found, wanted)),
    toEqual: check('equal to', (wanted) => equal(found, wanted)),
    toContain: check('holding', (wanted) =>
      typeof found === 'string'
        ? found.includes(String(wanted))
        : [...(found as Iterable<unknown>)].includes(wanted),
    ),
    toBeDefined: check('defined, not', () => found !== undefined),
    toBeGreaterThan: check('above', (wanted) => (found as number) > (wanted as number)),
  };
}

interface Expect {
  (found: unknown, message?: string): unknown;
  objectContaining(fields: object): unknown;
}

export const expect: Expect = Object.assign(
  (found: unknown, message = '') => ({
    ...matchers(found, message, false),
    not: matchers(found, message, true),
  }),
  { objectContaining: (fields: object) => new Containing(fields) },
);

/** Runs all tests, one after the other. */
export async function suiteResults(): Promise<TestEnd[]> {
  const ends: TestEnd[] = [];
  for (const { name, before, after, tests } of suites.splice(0)) {
    for (const test of tests) {
      let problem = '';
      let isSkipped = false;
      try {
        for (const act of before) await act(context);
        await test.act(context);
      } catch (error) {
        isSkipped = error instanceof Skipped;
        if (!isSkipped) problem = error instanceof Error ? (error.stack ?? error.message) : String(error);
      }
      try {
        for (const act of after) await act(context);
      } catch (error) {
        problem ||= `afterwards: ${error instanceof Error ? error.message : error}`;
      }
      ends.push({ name: `${name} > ${test.name}`, problem, isSkipped });
    }
  }
  return ends;
}
