import { describe, expect, it } from 'vitest';
import { KVManager, LogWriter, type ManagerConfig, Outcome } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';

const config: ManagerConfig = { unitBytes: [1], hbm: { capacityBytes: 3 }, ddr: { capacityBytes: 3 } };

/** The lines of a small run: two requests over one chain. */
function record(): string[] {
  let text = '';
  const writer = new LogWriter(config, {
    log: (piece) => {
      text += piece;
    },
  });
  const manager = new KVManager(config, writer);
  const keys = Uint32Array.from([1, 0, 0, 0xdeadbeef, 2, 0, 0, 0]);
  for (let now = 0; now < 20; now += 10) {
    const sequence = manager.open(keys, 2, now);
    manager.allocate(sequence, sequence.matched, 2, now + 1);
    manager.seal(sequence, sequence.matched, 2, keys, sequence.matched * 4, 16, now + 2);
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, now + 3, 9, 9);
    }
    manager.release(sequence, now + 4);
  }
  writer.end();
  return text.trimEnd().split('\n');
}

const lines = record();
const replay = (log: readonly string[]): (() => unknown) => {
  return () => replayLog(log, 'run.log');
};

describe('a decision log', () => {
  it('names its version, configuration and policies, and runs again', () => {
    expect(lines[0]).toMatch(
      /^# tierkv decision log 4 \{.*"eviction":\{"behindLru":0.0025,"policy":"hazard"\}\} [0-9a-f]{8}$/,
    );
    expect(lines.at(-1)).toMatch(/^# end \d+ [0-9a-f]{8}$/);
    const manager = replayLog(lines, 'run.log');
    expect(manager.inspect.counters.hitBlocks).toBe(2);
    manager.checkIntegrity();
  });

  it('is refused where a line was edited, taken out, added or exchanged, with file and line', () => {
    for (let at = 1; at < lines.length; at++) {
      const edited = lines.with(
        at,
        lines[at].replace(/\d/, (digit) => (digit === '9' ? '8' : '9')),
      );
      expect(replay(edited), `line ${at + 1} edited`).toThrow(`run.log:${at + 1} `);
      if (at + 1 < lines.length) {
        expect(replay(lines.toSpliced(at, 1)), `line ${at + 1} out`).toThrow(`run.log:${at + 1} `);
      }
      expect(replay(lines.toSpliced(at, 0, lines[at])), `line ${at + 1} twice`).toThrow(/run\.log:\d+ /);
    }
    expect(replay([...lines, lines[1]])).toThrow(/follows the end of the log/);
  });

  it('is refused where it was cut', () => {
    for (let length = 0; length < lines.length; length++) {
      expect(replay(lines.slice(0, length))).toThrow(/is empty|the log was cut/);
    }
    expect(replay(lines.with(5, lines[5].slice(0, -9)))).toThrow(/run\.log:6 .*cut or edited/);
  });

  it('is refused where it is of another version, no log, or holds a configuration that no manager takes', () => {
    expect(replay([lines[0].replace('log 4', 'log 2')])).toThrow(
      /is of version 2, and this tierkv reads version 4/,
    );
    expect(replay(['hello'])).toThrow(/is not the head of a tierkv decision log/);
    let text = '';
    const empty = new LogWriter(config, { log: (piece) => (text += piece) });
    empty.end();
    expect(replay(text.trimEnd().split('\n'))).not.toThrow();
    expect(replay([lines[0].replace(/\{.*\}/, '{')])).toThrow(/not JSON/);
  });

  it('keeps the keys of long chains to the bit', () => {
    const words = Uint32Array.from({ length: 4000 }, (_, i) => Math.imul(i, 0x9e3779b1) >>> 0);
    let text = '';
    const writer = new LogWriter(config, { log: (piece) => (text += piece) });
    const manager = new KVManager(config, writer);
    manager.release(manager.open(words, 1000, 0), 0);
    writer.end();
    let again = '';
    const second = new LogWriter(config, { log: (piece) => (again += piece) });
    replayLog(text.trimEnd().split('\n'), 'run.log', second);
    second.end();
    expect(again).toBe(text);
  });
});
