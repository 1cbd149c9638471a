/** Hebrew for the tests: what is seen first, to prove a language from right to left with words of its own. */
export const words = {
  title: "צ׳אט", open: "פתיחת הצ׳אט", close: "סגירת הצ׳אט", log: "שיחה", message: "הודעה",
  placeholder: "כתיבת הודעה…", send: "שליחה", attach: "צירוף קבצים", stop: "עצירת התשובה", sending: "נשלח…", queued: "ממתין בתור",
  failed: "לא נשלח", retry: "ניסיון נוסף", discard: "מחיקה", copy: "העתקה", copied: "הועתק", pin: "נעיצה", unpin: "ביטול הנעיצה",
  menu: "תפריט", cancel: "ביטול", latest: "אל ההודעה האחרונה", thinking: "העוזר כותב תשובה", working: "בעבודה…", stopped: "נעצר",
  you: "אני", assistant: "העוזר", notice: "הודעת מערכת", offline: "אין חיבור. ההודעות נשמרות ויישלחו בהמשך.",
  connecting: "מתחבר…", reconnecting: "החיבור נותק. מנסה שוב…", back: "החיבור חזר", welcome: "איך אפשר לעזור?",
  ai_line: "השיחה היא עם בינה מלאכותית. היא עלולה לטעות.", organizing: "השיחה מסוכמת…", organized: "השיחה המוקדמת סוכמה.",
  card_summary: "השיחה המוקדמת סוכמה", tab_summary: "סיכום", tab_original: "מקור", undo: "ביטול", card_tabs: "סיכום או הודעות המקור",
  context: "הקשר: {pct} · ~{used}/{limit}", commands: "פקודות", unread: "{count} שלא נקראו", ok: "יש מקום רב", warning: "מתמלא", critical: "כמעט מלא",
};
