import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { HostArena } from '../../../src/backends/memory/index.ts';
import { loadLibc } from '../../../src/backends/posix/index.ts';

const MiB = 1024 * 1024;

describe('host arena', () => {
  it('starts every chunk at a page boundary and keeps chunks apart', async ({ skip }) => {
    const libc = await loadLibc();
    if (typeof libc === 'string') return skip(libc);
    for (const native of [true, false]) {
      using arena = await HostArena.open({ chunkBytes: [5000, 3 * MiB, 12], native, field: 'test' });
      const views = arena.chunks.map((chunk) => new Uint8Array(chunk));
      for (const view of views) expect(libc.addressOf(view) % 4096n).toBe(0n);
      views.forEach((view, index) => void view.fill(index + 1));
      views.forEach((view, index) => void expect(view.every((byte) => byte === index + 1)).toBe(true));
    }
  });

  it('goes on without a lock where the limit forbids it, and says so', ({ skip }) => {
    const script = `
      const { HostArena } = await import('./src/backends/memory/index.ts');
      const arena = await HostArena.open({ chunkBytes: [${4 * MiB}], field: 'test' });
      new Uint8Array(arena.chunks[0]).fill(1);
      console.log(JSON.stringify(arena.facts));`;
    const run = spawnSync(
      'prlimit',
      ['--memlock=65536:65536', '--', ...asNobody, process.execPath, '-e', script],
      {
        encoding: 'utf8',
      },
    );
    if (run.error !== undefined || run.status !== 0)
      return skip(`cannot lower the limit here: ${run.stderr}`);
    expect(JSON.parse(run.stdout)).toMatchObject({ locked: false, populated: true });
    expect(JSON.parse(run.stdout).notGranted).toMatch(/mlock: (ENOMEM|EPERM|EAGAIN)|koffi|native/);
  });

  it('gives its address range back only when no buffer is left', ({ skip }) => {
    const script = `
      const { readFileSync } = await import('node:fs');
      const { HostArena } = await import('./src/backends/memory/index.ts');
      const mappedKiB = () => Number(/VmSize:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
      const residentKiB = () => Number(/VmRSS:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
      const facts = [];
      let source = '';
      const before = { mapped: mappedKiB(), resident: residentKiB() };
      for (let round = 0; round < 8; round++) {
        const arena = await HostArena.open({ chunkBytes: [${64 * MiB}], field: 'test' });
        const view = new Uint8Array(arena.chunks[0], 4096, 100);
        source = arena.facts.source;
        arena[Symbol.dispose]();
        facts.push([view.length, arena.chunks.length]);
        globalThis.gc();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const mappedMiB = (mappedKiB() - before.mapped) / 1024;
      const residentMiB = (residentKiB() - before.resident) / 1024;
      console.log(JSON.stringify({ source, facts, mappedMiB, residentMiB }));`;
    const run = spawnSync(process.execPath, ['--expose-gc', '-e', script], { encoding: 'utf8' });
    expect(run.stderr).not.toMatch(/Error/);
    expect(run.status).toBe(0);
    const end = JSON.parse(run.stdout);
    skip(end.source !== 'mmap', 'memory is not mapped here');
    expect(end.facts).toEqual(Array.from({ length: 8 }, () => [0, 0]));
    expect(end.residentMiB).toBeLessThan(64);
    expect(end.mappedMiB).toBeLessThan(3 * 66);
  });
});

/** Root may lock whatever it likes, so the limit is tested as somebody else. */
const asNobody: string[] =
  process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
