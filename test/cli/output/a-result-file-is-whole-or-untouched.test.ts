import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { requireWritableTarget, writeJsonFile } from '../../../src/io/files/results.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'tierkv-json-'));
  onTestFinished(() => fs.rmSync(dir, { recursive: true }));
});

describe('writing a result file', () => {
  it('replaces what was there and leaves nothing else in the directory', () => {
    const file = join(dir, 'report.json');
    fs.writeFileSync(file, 'a longer text that was here before and must be gone');
    requireWritableTarget(file);
    writeJsonFile(file, { requests: 2 });
    expect(fs.readFileSync(file, 'utf8')).toBe('{\n  "requests": 2\n}\n');
    expect(fs.readdirSync(dir)).toEqual(['report.json']);
  });

  it('keeps the old file when the value cannot be written as JSON', () => {
    const file = join(dir, 'report.json');
    fs.writeFileSync(file, 'old');
    expect(() => writeJsonFile(file, { requests: 2n })).toThrow(TypeError);
    expect(fs.readFileSync(file, 'utf8')).toBe('old');
    expect(fs.readdirSync(dir)).toEqual(['report.json']);
  });

  it.each(['600', '640', '666'])('keeps the permissions %s of what was there', (permissions) => {
    const mode = Number.parseInt(permissions, 8);
    const file = join(dir, 'report.json');
    fs.writeFileSync(file, 'old');
    fs.chmodSync(file, mode);
    writeJsonFile(file, 1);
    expect(fs.statSync(file).mode & 0o777).toBe(mode);
    writeJsonFile(join(dir, 'new.json'), 1);
    fs.writeFileSync(join(dir, 'plain.json'), '');
    expect(fs.statSync(join(dir, 'new.json')).mode).toBe(fs.statSync(join(dir, 'plain.json')).mode);
  });

  it('writes what a symbolic link points to and keeps the link', () => {
    const file = join(dir, 'report.json');
    const link = join(dir, 'latest.json');
    fs.writeFileSync(file, 'old');
    fs.symlinkSync(file, link);
    writeJsonFile(link, 1);
    expect(fs.readFileSync(file, 'utf8')).toBe('1\n');
    expect(fs.lstatSync(link).isSymbolicLink()).toBe(true);
  });

  it('writes through a target other than a regular file instead of replacing it', () => {
    requireWritableTarget('/dev/null');
    writeJsonFile('/dev/null', 1);
    expect(fs.statSync('/dev/null').isCharacterDevice()).toBe(true);
  });

  it.each([
    ['a directory that does not exist', () => join(dir, 'missing', 'report.json')],
    ['a directory', () => dir],
    ['a file used as a directory', () => join(import.meta.filename, 'report.json')],
  ])('%s is refused before the run and at its end, with the path', (_, target) => {
    for (const attempt of [() => requireWritableTarget(target()), () => writeJsonFile(target(), 1)]) {
      expect(attempt).toThrow(expect.objectContaining({ code: 'TKV_IO', path: target() }));
    }
    expect(fs.readdirSync(dir)).toEqual([]);
  });
});
