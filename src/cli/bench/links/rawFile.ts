/** A file without tierkv: whole reads and writes, by direct I/O where the file system does it. */

import fs from 'node:fs';
import { promisify } from 'node:util';

// promisify's types know these by their result alone, without the form that takes a part of a view
const calls = {
  read: promisify(fs.read) as unknown as FileCall,
  write: promisify(fs.write) as unknown as FileCall,
};
const datasync = promisify(fs.fdatasync);

export type Operation = keyof typeof calls;

type FileCall = (
  fd: number,
  bytes: Uint8Array,
  offset: number,
  length: number,
  position: number,
) => Promise<{ bytesRead?: number; bytesWritten?: number }>;

export class RawFile implements Disposable {
  readonly fd: number;
  readonly direct: boolean;

  private constructor(fd: number, direct: boolean) {
    this.fd = fd;
    this.direct = direct;
  }

  static buffered(file: string): RawFile {
    return new RawFile(fs.openSync(file, 'r+'), false);
  }

  /** @param probe a block of memory that direct I/O reaches; its bytes are lost */
  static direct(file: string, probe: Uint8Array): RawFile {
    const { O_DIRECT, O_RDWR } = fs.constants;
    try {
      const fd = fs.openSync(file, O_RDWR | (O_DIRECT ?? 0));
      try {
        fs.readSync(fd, probe, 0, probe.byteLength, 0);
        return new RawFile(fd, O_DIRECT !== undefined);
      } catch {
        fs.closeSync(fd);
      }
    } catch {
      // the file system refuses the flag
    }
    return RawFile.buffered(file);
  }

  async move(operation: Operation, bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.byteLength; ) {
      const length = bytes.byteLength - done;
      const { bytesRead, bytesWritten } = await calls[operation](
        this.fd,
        bytes,
        done,
        length,
        position + done,
      );
      const moved = bytesRead ?? bytesWritten ?? 0;
      if (moved === 0) throw new Error(`a ${operation} of a bench file moved nothing`);
      done += moved;
    }
  }

  sync(): Promise<void> {
    return datasync(this.fd);
  }

  [Symbol.dispose](): void {
    fs.closeSync(this.fd);
  }
}
