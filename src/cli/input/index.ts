/** What commands read: texts, lines and pipes, all of them up to a limit. */
export { FileContents, hashOfFolders } from './contents.ts';
export { compressionOf, fileLines, firstLine, refuseHiddenCompression } from './fileLines.ts';
export { inputError, lineTooLong, maxEmptyLines, maxLineBytes, maxTextBytes } from './limits.ts';
export { aboutPipe, type KeptPipe, keepPipe } from './pipe.ts';
export { filesReadBy, noteRead } from './reads.ts';
export { openRegular, readBytes, readText, refuseWideText, systemReason, unreadable } from './readText.ts';
