import { type DataFile, IoError } from '../../../src/backends/file/dataFile.ts';

/**
 * A file whose writes leave their places in `written`, in the order of their ends, unless `fault` names an
 * errno for them.
 */
export function recordedWrites(written: number[], fault: (at: number) => string = () => '') {
  return (file: DataFile): DataFile => ({
    readv: (parts, at) => file.readv(parts, at),
    async writev(parts, at) {
      const errno = fault(at);
      if (errno !== '') throw new IoError(errno, 'writev');
      await file.writev(parts, at);
      written.push(at);
    },
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  });
}
