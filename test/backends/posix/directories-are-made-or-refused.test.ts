import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { makeDirectories } from '../../../src/backends/host/posix.ts';

function scratch(): string {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-directories-'));
  onTestFinished(() => fs.rmSync(directory, { recursive: true }));
  return directory;
}

it('missing directories are made, with their mode; existing ones stay as they are', () => {
  const top = scratch();
  const deep = path.join(top, 'a', 'b', 'c');
  makeDirectories(deep, 0o700);
  for (const each of ['a', 'a/b', 'a/b/c']) {
    expect(fs.statSync(path.join(top, each)).mode & 0o777, each).toBe(0o700);
  }
  fs.writeFileSync(path.join(deep, 'file'), 'kept');
  makeDirectories(deep);
  expect(fs.readFileSync(path.join(deep, 'file'), 'utf8')).toBe('kept');
});

it('a directory that cannot be made is an error: a file in its place or above it, a dangling link', () => {
  const top = scratch();
  const file = path.join(top, 'file');
  fs.writeFileSync(file, '');
  fs.symlinkSync(path.join(top, 'nothing'), path.join(top, 'link'));
  expect(() => makeDirectories(file)).toThrow(/EEXIST/);
  expect(() => makeDirectories(path.join(file, 'x'))).toThrow(/ENOTDIR/);
  expect(() => makeDirectories(path.join(top, 'link', 'x'))).toThrow(/EEXIST/);
});

it.runIf(fs.existsSync('/proc/self'))(
  'a file system that cannot make directories is an error, not an endless loop',
  () => {
    expect(() => makeDirectories('/proc/x/y')).toThrow(/ENOENT/);
  },
);
