import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const root = new URL('../../src/sim/', import.meta.url);
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));

/**
 * Code without comments and without the contents of strings, so that prose may say what the code may not do.
 */
function codeOf(source: string): string {
  return source
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/(^|[^:'"])\/\/.*$/gm, '$1')
    .replace(/'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g, "''");
}

const FORBIDDEN: ReadonlyArray<readonly [string, RegExp]> = [
  ['Date', /\bDate\b/],
  ['performance', /\bperformance\b/],
  ['Math.random', /\bMath\s*\.\s*random\b/],
  ['crypto', /\bcrypto\b/],
  ['timers', /\b(setTimeout|setInterval|setImmediate|queueMicrotask|requestAnimationFrame)\b/],
  ['process', /\bprocess\s*\./],
  ['engine-defined functions', /\bMath\s*\.\s*(exp|log|pow|sin|cos|tan|log2|log10|log1p|expm1|cbrt|hypot)\b/],
];

/**
 * What reads the WebAssembly module of an installed package, once, before any simulation: the engine of policies
 * in JavaScript is metered before it runs, so its bytes have to be there.
 */
const READS_A_PACKAGE: Readonly<Record<string, readonly string[]>> = {
  'sandbox/javascript/engineModule.ts': ['node:module', 'node:fs/promises'],
};

describe('the simulator has one source of time and one of chance', () => {
  it('finds the simulator', () => expect(files.length).toBeGreaterThan(10));

  it.each(files.filter((name) => !/^(build|fitting)\//.test(name)))('%s', (name) => {
    const source = readFileSync(new URL(name, root), 'utf8');
    const code = codeOf(source);
    // the latency models may use Math functions of their own: they are not random streams
    const rules = name.startsWith('latency/') ? FORBIDDEN.slice(0, -1) : FORBIDDEN;
    for (const [what, pattern] of rules) expect.soft(pattern.test(code), `${name} uses ${what}`).toBe(false);
    const imports = [...source.matchAll(/(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)].map(
      (match) => match[1],
    );
    for (const target of imports) {
      if (READS_A_PACKAGE[name]?.includes(target)) continue;
      expect
        .soft(target, `${name} imports ${target}`)
        .not.toMatch(/^node:|^(fs|os|crypto|timers|worker_threads)$/);
      if (!target.startsWith('.')) continue;
      const resolved = new URL(target, new URL(name, root)).pathname;
      expect.soft(resolved, `${name} imports ${target}`).not.toMatch(/\/src\/(cli|backends)\//);
    }
  });

  it('would notice', () => {
    expect(FORBIDDEN[0][1].test(codeOf('const t = Date.now(); // fine'))).toBe(true);
    expect(FORBIDDEN[0][1].test(codeOf("// Date\nconst t = 'Date';"))).toBe(false);
    expect(FORBIDDEN[2][1].test(codeOf('Math.random()'))).toBe(true);
  });
});
