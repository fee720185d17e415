/** `src/packageFiles.ts` in a page: the files of the package are a part of the code, under addresses that nothing else has. */

/** Of no file of a disk. A build for browsers has the texts below it. */
const folder: URL = new URL('file:///tierkv/data/');

export function dataFolder(): URL {
  return folder;
}
