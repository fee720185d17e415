import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { HostArena } from '../../../src/backends/host/hostArena.ts';
import { loadLibc } from '../../../src/backends/host/posix.ts';

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

  it('works unlocked if the limit forbids locking, and says so', ({ skip }) => {
    const script = `
      const { HostArena } = await import('./src/backends/host/hostArena.ts');
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

  it('is ordinary memory, and says so, where the process may not have the addresses of a WebAssembly memory', ({
    skip,
  }) => {
    const script = `
      const { HostArena } = await import('./src/backends/host/hostArena.ts');
      const { hostDigest } = await import('./src/backends/host/hostDigest.ts');
      const arenas = [];
      for (let i = 0; i < 4; i++) arenas.push(await HostArena.open({ chunkBytes: [${2 * MiB}], field: 'test' }));
      const bytes = new Uint8Array(arenas[3].chunks[0], 0, ${MiB}).fill(5);
      const same = new Uint8Array(${MiB}).fill(5);
      const { notGranted, pageAligned } = arenas[3].facts;
      console.log(JSON.stringify({ notGranted, pageAligned, found: hostDigest(bytes), wanted: hostDigest(same) }));`;
    const run = spawnSync('prlimit', ['--as=30000000000', '--', process.execPath, '-e', script], {
      encoding: 'utf8',
    });
    if (run.error !== undefined || run.status !== 0)
      return skip(`cannot limit addresses here: ${run.stderr}`);
    const { notGranted, pageAligned, found, wanted } = JSON.parse(run.stdout);
    skip(/koffi|bound on Linux/.test(notGranted), notGranted);
    expect(notGranted).toMatch(/no memory of WebAssembly/);
    expect(pageAligned).toBe(true);
    expect(found).toEqual(wanted);
  });

  it('gives its pages back at once, and its address range when no buffer is left', async ({ skip }) => {
    const libc = await loadLibc();
    if (typeof libc === 'string') return skip(libc);
    const script = `
      const { readFileSync } = await import('node:fs');
      const { HostArena } = await import('./src/backends/host/hostArena.ts');
      const status = () => readFileSync('/proc/self/status', 'utf8');
      const mib = (name) => Number(new RegExp(name + ':\\\\s+(\\\\d+)').exec(status())[1]) / 1024;
      const before = { mapped: mib('VmSize'), resident: mib('VmRSS') };
      const kept = [];
      for (let round = 0; round < 24; round++) {
        const arena = await HostArena.open({ chunkBytes: [${64 * MiB}], field: 'test' });
        if (round < 4) kept.push(new Uint8Array(arena.chunks[0], 4096, 100).fill(7));
        arena[Symbol.dispose]();
        if (arena.chunks.length > 0) throw new Error('chunks after dispose');
        globalThis.gc();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const bytes = kept.map((view) => view[0]);
      const mappedMiB = mib('VmSize') - before.mapped;
      const residentMiB = mib('VmRSS') - before.resident;
      console.log(JSON.stringify({ bytes, mappedMiB, residentMiB }));`;
    const run = spawnSync(process.execPath, ['--expose-gc', '-e', script], { encoding: 'utf8' });
    expect(run.stderr).not.toMatch(/Error/);
    expect(run.status).toBe(0);
    const end = JSON.parse(run.stdout);
    expect(end.bytes).toEqual([0, 0, 0, 0]);
    expect(end.residentMiB).toBeLessThan(64);
    // V8 reserves a range of some GiB for each memory: those of the four that are held, and a few that wait
    // for the collector
    expect(end.mappedMiB).toBeLessThan(24 * 8192);
  });
});

/** Root may lock any memory, so the limit is tested as another user. */
const asNobody: string[] =
  process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
