/**
 * The part of `node:path` that the readers of descriptions need, in a page: names of given files, with `/` between
 * their parts.
 */

export function join(...parts: readonly string[]): string {
  const kept: string[] = [];
  for (const part of parts.join('/').split('/')) {
    if (part === '' || part === '.') continue;
    if (part === '..' && kept.length > 0 && kept[kept.length - 1] !== '..') kept.pop();
    else kept.push(part);
  }
  return `${parts.join('/').startsWith('/') ? '/' : ''}${kept.join('/')}`;
}

/** A page has no current folder: names stay as they are. */
export function resolve(...parts: readonly string[]): string {
  const start = parts.findLastIndex((part) => part.startsWith('/'));
  return join(...parts.slice(Math.max(start, 0)));
}

export function dirname(name: string): string {
  const end = name.lastIndexOf('/');
  return end < 0 ? '.' : name.slice(0, Math.max(end, 1));
}

export function basename(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}

export const sep = '/';

const paths: {
  readonly sep: string;
  readonly join: typeof join;
  readonly resolve: typeof resolve;
  readonly dirname: typeof dirname;
  readonly basename: typeof basename;
} = { sep, join, resolve, dirname, basename };
export default paths;
