/** Names of browsers that the library uses where it runs in a page or a worker; this project has no DOM library. */

declare module 'tierkv:files' {
  /** Texts of the data files of the package, by their names below `data/`. A build for browsers makes this module. */
  const texts: Readonly<Record<string, string>>;
  export default texts;
}

declare module 'tierkv:file-worker' {
  /** The program of `src/adapters/browser/fileWorker.ts`. A build for browsers makes this module. */
  const program: string;
  export default program;
}

interface FileSystemSyncAccessHandle {
  read(bytes: Uint8Array, options: { readonly at: number }): number;
  write(bytes: Uint8Array, options: { readonly at: number }): number;
  truncate(bytes: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

interface FileSystemFileHandle {
  getFile(): Promise<Blob>;
  createSyncAccessHandle(): Promise<FileSystemSyncAccessHandle>;
  move(name: string): Promise<void>;
}

interface FileSystemDirectoryHandle {
  getFileHandle(name: string, options?: { readonly create?: boolean }): Promise<FileSystemFileHandle>;
  getDirectoryHandle(
    name: string,
    options?: { readonly create?: boolean },
  ): Promise<FileSystemDirectoryHandle>;
  removeEntry(name: string, options?: { readonly recursive?: boolean }): Promise<void>;
}

interface StorageManager {
  getDirectory(): Promise<FileSystemDirectoryHandle>;
  estimate(): Promise<{ readonly quota?: number; readonly usage?: number }>;
}

interface Navigator {
  readonly storage: StorageManager;
}
