import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { runInBoth } from './bothEngines.ts';
import { RandomPrograms } from './randomPrograms.ts';

/** starlark-pyo3 of PyPI. Its globals are not frozen and its values may nest in themselves; ours differ on purpose. */
const onPurpose = /over 2\^53|_limit|is frozen|nest deeper|run over string/;

function hasOracle(): boolean {
  try {
    execFileSync('python3', ['-c', 'import starlark'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const isAbsent = !hasOracle();
if (isAbsent)
  console.warn('SKIPPED: starlark-pyo3 is not here as a second opinion (pip install starlark-pyo3)');
const seed = Number(process.env.TIERKV_SEED ?? 5);

it.skipIf(isAbsent)(`starlark-pyo3 computes the same on 1,000 random programs (seed ${seed})`, () => {
  const programs = new RandomPrograms(seed);
  const sources = Array.from({ length: 1000 }, () => programs.program());
  const script = fileURLToPath(new URL('./oracle.py', import.meta.url));
  const output = execFileSync('python3', [script], { input: JSON.stringify(sources), maxBuffer: 1 << 28 });
  const theirs = JSON.parse(output.toString()) as (string | null)[];
  let compared = 0;
  sources.forEach((source, i) => {
    const ours = runInBoth(source);
    if (onPurpose.test(ours.error ?? '')) return;
    compared++;
    expect(ours.value ?? null, `program:\n${source}\n${ours.error ?? ''}`).toBe(theirs[i]);
  });
  expect(compared).toBeGreaterThan(900);
});
