import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';

/**
 * Imports the door in a new process in which a package named vitest cannot be found, and prints what it exports.
 * @param more what it does then
 */
function exportsOf(more = '') {
  const url = new URL('../../src/testing/index.ts', import.meta.url).href;
  const program = `
    import { registerHooks } from 'node:module';
    registerHooks({ resolve(name, context, next) {
      if (name === 'vitest') throw new Error('vitest is not installed');
      return next(name, context);
    } });
    const door = await import(${JSON.stringify(url)});
    console.log(Object.keys(door).join(' '));
    ${more}`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
}

it('stores with faults can be imported without vitest', () => {
  const { stdout, stderr } = exportsOf();
  expect(stderr).toBe('');
  expect(stdout.trim().split(' ')).toEqual(
    expect.arrayContaining(['FaultStore', 'FaultPlan', 'StandInDisk', 'SeededRandom', 'patternItem']),
  );
});

it('the contract of stores is a suite of vitest, and asks for it', () => {
  expect(exportsOf("await door.tierContract('x', () => {});").stderr).toContain('vitest is not installed');
});
