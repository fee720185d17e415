/**
 * The file system of a store in a browser: a directory of the origin's private files. It stands in the place of
 * `src/backends/file/posixFolder.ts`; records, verification and recovery are the same. In a dedicated worker files are
 * used where the runtime is; the thread of a page has no synchronous access to them, and a worker inside has it.
 */

import { IoError, type StoreFolder } from '../../backends/file/dataFile.ts';
import { configError } from '../../runtime/errors.ts';
import { openOpfsFolder, problemAt } from './opfsFiles.ts';

export const hasDirectIo = false;

/** @throws TKV_CONFIG where neither this thread nor a worker inside has files; TKV_IO where the browser gives none */
export async function folderAt(dir: string): Promise<StoreFolder> {
  const { FileSystemFileHandle: handles, Worker: workers } = globalThis as {
    readonly FileSystemFileHandle?: { readonly prototype: object };
    readonly Worker?: object;
  };
  if (handles === undefined || navigator.storage?.getDirectory === undefined) {
    throw problemAt(dir, 'opening private files', new IoError('EACCES', 'getDirectory'));
  }
  if ('createSyncAccessHandle' in handles.prototype) return await openOpfsFolder(dir);
  if (workers !== undefined) {
    const { FilesInWorker } = await import('./filesInWorker.ts');
    const files = new FilesInWorker();
    return await openOpfsFolder(dir, files).catch((error: unknown) => {
      files.end();
      throw error;
    });
  }
  throw configError(
    'nvme',
    'needs synchronous access to files, which browsers give to dedicated workers alone, and this thread starts none',
    'Open the runtime in a page or a dedicated worker, or leave nvme out.',
  );
}

/** @throws TKV_CONFIG naming `nvme.capacityBytes` for more than the origin may ever have */
export async function requireDiskHolds(bytes: number, dir: string): Promise<void> {
  const { quota } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
  if (quota === undefined || bytes <= quota) return;
  throw configError(
    'nvme.capacityBytes',
    `asks for ${bytes} bytes in ${dir}, and the browser gives this site ${quota}`,
    'Lower nvme.capacityBytes.',
  );
}
